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
  HONE_CHECK(range.first >= 0, op.name(), ": first is ", range.first, ", wants 0 or more");
}

void check_pieces(const Tensor& pieces, const Tensor& x, int64_t size) {
  HONE_CHECK(size > 0 && size % 4 == 0, "sum_squares: pieces of ", size, " elements, wants a multiple of 4");
  check_shape(sum_squares, "x", x, {x.dim(0)});
  check_shape(sum_squares, "pieces", pieces, {(x.dim(0) + size - 1) / size}, DType::f64);
}

void check_pieces(const Tensor& sum, const Tensor& pieces) {
  check_shape(sum_pieces, "sum", sum, {1}, DType::f64);
  check_shape(sum_pieces, "pieces", pieces, {pieces.dim(0)}, DType::f64);
}

void check_moments(const ParamRange& range, const Tensor& m, const Tensor& v) {
  const DType dtype = m.dtype == DType::bf16 ? DType::bf16 : DType::f32;
  check_shape(adamw_update, "m", m, {range.value.dim(0)}, dtype);
  check_shape(adamw_update, "v", v, {range.value.dim(0)}, dtype);
}

void check_mean(const OpBase& op, const Tensor& m, int64_t count) {
  check_shape(op, "m", m, {count}, m.dtype == DType::bf16 ? DType::bf16 : DType::f32);
}

}  // namespace hone
