// A kernel that exists only as machine code for 9.0a: the "sm90" bodies run where it loads.
//
// Use       never launched: its attributes tell whether the code is loaded (limits.cu).
// Tile      none.
// Roles     none.
// Pipeline  none.
// Smem      none.
// Numerics  none.
// PDL       none.
// Limits    sm_90a.
#include "kernels/cuda/limits.h"

namespace hone {
namespace {

__global__ void probe() {}

[[maybe_unused]] const bool added = [] {
  hopper_probe = reinterpret_cast<const void*>(probe);
  return true;
}();

}  // namespace
}  // namespace hone
