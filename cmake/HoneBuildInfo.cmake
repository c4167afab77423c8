# Version, commit and options of the build, for `hone --version`. The commit is found at each build. It stands in one
# small generated file, which is compiled only if the commit has changed.
function(hone_build_info level)
  set(architectures_of_cuda "")
  set(build "${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_SYSTEM_PROCESSOR}")
  if(HONE_CUDA)
    list(JOIN CMAKE_CUDA_ARCHITECTURES "," architectures_of_cuda)   # a definition cannot hold a list
    string(REGEX REPLACE "-(real|virtual)" "" architectures "${CMAKE_CUDA_ARCHITECTURES}")
    list(TRANSFORM architectures PREPEND "sm_")
    list(JOIN architectures " " architectures)
    string(APPEND build ", CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${architectures}")
  else()
    string(APPEND build ", without CUDA")
  endif()
  if(HONE_SANITIZE)
    string(APPEND build ", sanitizers ${HONE_SANITIZE}")
  endif()
  set_property(SOURCE ${CMAKE_SOURCE_DIR}/core/base/build_info.cpp APPEND PROPERTY COMPILE_DEFINITIONS
    HONE_VERSION="${PROJECT_VERSION}" "HONE_BUILD=\"${build}\"" "HONE_CUDA_ARCHITECTURES=\"${architectures_of_cuda}\"")
  set(file ${CMAKE_BINARY_DIR}/generated/commit.cpp)
  add_custom_target(commit
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DFILE=${file} -P ${CMAKE_SOURCE_DIR}/cmake/commit.cmake
    BYPRODUCTS ${file} COMMENT "" VERBATIM)
  target_sources(${level} PRIVATE ${file})
  add_dependencies(${level} commit)
endfunction()
