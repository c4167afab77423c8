#pragma once
// What bodies of the optimizer updates share: the checks of a range, and which parts of it decay.
#include "kernels/optimizer/optimizer.h"

namespace hone {

void check_range(const OpBase& op, const ParamRange& range);
// m and v: both f32 or both bf16.
void check_moments(const ParamRange& range, const Tensor& m, const Tensor& v);

// On the host.
inline bool decays(const ParamRange& range, int64_t i) {
  return !range.decays || range.decays.ptr<uint8_t>()[i / param_granule] != 0;
}

}  // namespace hone
