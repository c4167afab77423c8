// The definitions come from cmake/HoneBuildInfo.cmake.
#include "core/base/build_info.h"

#include "core/base/check.h"

namespace hone {

std::string version_text() { return concat(HONE_VERSION " (", build_commit(), ")"); }

std::string build_text() { return HONE_BUILD; }

std::string build_cuda_architectures() { return HONE_CUDA_ARCHITECTURES; }

}  // namespace hone
