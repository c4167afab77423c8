# Everything comes from the distribution (./dev names the packages). CMAKE_PREFIX_PATH finds an unpacked copy (.deps/usr) first.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Boost 1.74 REQUIRED)   # headers alone: Asio and Beast
find_package(OpenSSL REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
# Its own CMake files ask for OpenCL headers that the CPU engine does not use.
find_path(DNNL_INCLUDE dnnl.h REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)
# Debian's package has no pkg-config file.
find_path(SNAPPY_INCLUDE snappy-c.h REQUIRED)
find_library(SNAPPY_LIBRARY snappy REQUIRED)
pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
find_package(benchmark QUIET)

add_library(hone_dependencies INTERFACE)
target_link_libraries(hone_dependencies INTERFACE
  Threads::Threads ZLIB::ZLIB Boost::headers OpenSSL::SSL ${CMAKE_DL_LIBS} nlohmann_json::nlohmann_json tomlplusplus::tomlplusplus spdlog::spdlog CLI11::CLI11 ${DNNL_LIBRARY} gomp PkgConfig::HWY PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::SECCOMP PkgConfig::EDIT PkgConfig::ZSTD PkgConfig::LZ4 ${SNAPPY_LIBRARY})
target_include_directories(hone_dependencies SYSTEM INTERFACE ${SNAPPY_INCLUDE})
if(HONE_CUDA)
  find_package(CUDAToolkit REQUIRED)
  # The CUDA runtime is linked statically and loads the driver when it is first called. Of cuBLASLt and NCCL only the
  # headers are used here: the program loads the libraries when first needed (core/base/shared_library.h).
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  target_link_libraries(hone_dependencies INTERFACE CUDA::cudart_static)
  # Without NCCL's header, devices have no links (core/comm/device_link.h).
  find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NCCL_INCLUDE)
    set(HONE_NCCL ON)
    target_include_directories(hone_dependencies SYSTEM INTERFACE ${NCCL_INCLUDE})
  endif()
endif()
