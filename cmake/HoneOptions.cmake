if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

# Bits are part of the contract: no fast-math, no contraction that the source does not spell out (std::fma, Highway's MulAdd).
add_library(hone_options INTERFACE)
target_compile_options(hone_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -ffp-contract=off>
  # g++ 12 reports it inside every moved std::variant.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
target_include_directories(hone_options INTERFACE ${CMAKE_SOURCE_DIR})
# Vector bodies exist for AVX-512, AVX2 and (plain code) anything else: SSE lacks the fused multiply-add that their bits rest on.
target_compile_definitions(hone_options INTERFACE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")
if(HONE_SANITIZE)
  target_compile_options(hone_options INTERFACE -fsanitize=${HONE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(hone_options INTERFACE -fsanitize=${HONE_SANITIZE})
  target_compile_definitions(hone_options INTERFACE HONE_DEBUG_CHECKS)
endif()

if(HONE_FUZZ)
  target_compile_options(hone_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

if(HONE_CUDA)
  include(HoneCuda)
  target_compile_options(hone_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr --expt-extended-lambda -fmad=false -lineinfo>)
endif()
