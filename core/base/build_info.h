#pragma once
// What this program was built from: version, commit, compiler and options.
#include <string>

namespace hone {

std::string version_text();  // "0.1.0 (f3a431669be0)"; with "-dirty" if the source tree had uncommitted changes
std::string build_text();    // "Release, GNU 12.2.0, x86_64, CUDA 13.0.88 for sm_90a"

// CMAKE_CUDA_ARCHITECTURES of the build, "80,90a-real"; empty without CUDA.
std::string build_cuda_architectures();

// The commit, "unknown" without git. The build writes this function (cmake/commit.cmake).
const char* build_commit();

}  // namespace hone
