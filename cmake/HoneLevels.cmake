# Each row of the table of levels (docs/dev/architecture.md) is an OBJECT library of the files in its folder and below,
# without those of rows inside it. So a new file is built without an edit of a list, and the linker cannot drop a file
# that only registers itself. The library has the name of the row, with _ for /. *_cuda.cpp and *.cu belong to CUDA
# builds, nccl_*.cpp to CUDA builds with NCCL's header.

# Sources below a folder, without those below the folders that follow it.
function(hone_sources out folder)
  file(GLOB_RECURSE found RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
  if(HONE_CUDA)
    file(GLOB_RECURSE cu RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cu)
    list(APPEND found ${cu})
  else()
    list(FILTER found EXCLUDE REGEX "_cuda\\.cpp$")
  endif()
  if(NOT HONE_NCCL)
    list(FILTER found EXCLUDE REGEX "/nccl_[^/]*\\.cpp$")
  endif()
  foreach(inner IN LISTS ARGN)
    list(FILTER found EXCLUDE REGEX "^${inner}/")
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# The rows, bottom up.
function(hone_levels)
  set_property(GLOBAL PROPERTY HONE_LEVELS ${ARGN})
  foreach(folder IN LISTS ARGN)
    set(inner ${ARGN})
    list(FILTER inner INCLUDE REGEX "^${folder}/")
    hone_sources(sources ${folder} ${inner})
    string(REPLACE "/" "_" name ${folder})
    add_library(${name} OBJECT ${sources})
    target_link_libraries(${name} PUBLIC hone_options hone_dependencies)
  endforeach()
endfunction()

# A file that travels inside the program: its text is what FOLDER/NAME.h's std::string_view NAME() returns.
function(hone_embed level file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${file})
  get_filename_component(NAME ${file} NAME_WE)
  get_filename_component(FOLDER ${file} DIRECTORY)
  file(READ ${CMAKE_SOURCE_DIR}/${file} TEXT)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/embedded.cpp.in ${CMAKE_BINARY_DIR}/embedded/${NAME}.cpp @ONLY)
  target_sources(${level} PRIVATE ${CMAKE_BINARY_DIR}/embedded/${NAME}.cpp)
endfunction()

# Links the rows' objects into target: those up to the last row of a folder, or every row's if the folder has none.
function(hone_link target folder)
  get_property(rows GLOBAL PROPERTY HONE_LEVELS)
  set(objects "")
  set(up_to_folder "")
  foreach(row IN LISTS rows)
    string(REPLACE "/" "_" name ${row})
    list(APPEND objects ${name})
    string(FIND "${row}/" "${folder}/" place)
    if(place EQUAL 0)
      set(up_to_folder ${objects})
    endif()
  endforeach()
  if(up_to_folder)
    set(objects ${up_to_folder})
  endif()
  target_link_libraries(${target} PRIVATE hone_options hone_dependencies ${objects})
endfunction()

# A program is a folder's files, without those of rows inside it, and every row.
function(hone_program name folder)
  get_property(inner GLOBAL PROPERTY HONE_LEVELS)
  list(FILTER inner INCLUDE REGEX "^${folder}/")
  hone_sources(sources ${folder} ${inner})
  add_executable(${name} ${sources})
  hone_link(${name} ${folder})
endfunction()
