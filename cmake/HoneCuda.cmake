# The CUDA language and the compute capabilities that the build makes machine code for.
#   not given                          the GPUs of this machine; without a GPU 8.0 and 9.0a, and PTX of 8.0
#   CMAKE_CUDA_ARCHITECTURES=native    the GPUs of this machine
#   CMAKE_CUDA_ARCHITECTURES=all       8.0, 8.6, 8.9, 9.0a, 10.0 and 12.0, as far as nvcc knows them, and PTX of 8.0
#   another list                       as CMake reads it
# 9.0 always means 9.0a: portable kernels lose nothing, and the Hopper kernels need it. *_sm90.cu and sm90/*.cu are
# compiled for 9.0a alone (HONE_HOPPER_ARCHITECTURES); a build without 9.0 leaves them out (HoneLevels.cmake).
set(hone_cuda_list "${CMAKE_CUDA_ARCHITECTURES}")
if(NOT hone_cuda_list)
  file(GLOB hone_gpus /dev/nvidia[0-9]*)
  if(hone_gpus)
    set(hone_cuda_list native)
  else()
    set(hone_cuda_list 80 90a-real)
  endif()
elseif(hone_cuda_list MATCHES "^all(-major)?$")
  set(hone_cuda_list all)
endif()

set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
# What CMake compiles its own test program for.
if(hone_cuda_list STREQUAL "all")
  set(CMAKE_CUDA_ARCHITECTURES 80-real)
else()
  set(CMAKE_CUDA_ARCHITECTURES ${hone_cuda_list})
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
  message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} at ${CMAKE_CUDA_COMPILER}; hone needs CUDA 12.4 or newer")
endif()

if(hone_cuda_list STREQUAL "all")
  set(hone_cuda_list 80-real 86-real 89-real 90a-real)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND hone_cuda_list 100-real 120-real)
  endif()
  list(APPEND hone_cuda_list 80-virtual)
elseif(hone_cuda_list STREQUAL "native")
  set(hone_cuda_list ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
endif()
list(TRANSFORM hone_cuda_list REPLACE "^90(-|$)" "90a\\1")
foreach(entry IN LISTS hone_cuda_list)
  string(REGEX MATCH "^[0-9]+" capability "${entry}")
  if(NOT capability OR capability LESS 80)
    message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES has ${entry}; hone's kernels need compute capability 8.0 (80) or newer")
  endif()
endforeach()
set(CMAKE_CUDA_ARCHITECTURES ${hone_cuda_list})
set(HONE_HOPPER_ARCHITECTURES ${hone_cuda_list})
list(FILTER HONE_HOPPER_ARCHITECTURES INCLUDE REGEX "^90a")
message(STATUS "CUDA machine code: ${CMAKE_CUDA_ARCHITECTURES}")
