// What the CPU supports, read once.
#include "kernels/cpu/features.h"

#include <hwy/targets.h>

namespace hone {

bool has_fused_multiply_add() {
  static const bool found = (hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL)) !=
                            0;  // SupportedTargets() takes 30 us on some virtual machines
  return found;
}

}  // namespace hone
