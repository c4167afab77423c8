// Argument checks that the CPU and CUDA optimizer updates share.
#include "kernels/optimizer/internal.h"

#include "kernels/check_shape.h"

namespace hone {

void check_range(const OpBase& op, const ParamRange& range) {
  const int64_t count = range.value.dim(0);
  check_shape(op, "value", range.value, {count});
  check_optional(op, "rounded", range.rounded, {count}, DType::bf16);
  check_shape(op, "grad", range.grad, {count});
  check_optional(op, "decays", range.decays, {(count + param_granule - 1) / param_granule}, DType::u8);
  check_shape(op, "clip", range.clip, {1});
}

void check_moments(const ParamRange& range, const Tensor& m, const Tensor& v) {
  const DType dtype = m.dtype == DType::bf16 ? DType::bf16 : DType::f32;
  check_shape(adamw_update, "m", m, {range.value.dim(0)}, dtype);
  check_shape(adamw_update, "v", v, {range.value.dim(0)}, dtype);
}

}  // namespace hone
