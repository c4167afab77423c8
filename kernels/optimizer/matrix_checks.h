#pragma once
// Argument checks that the CPU and CUDA bodies of Muon and Adafactor share.
#include "kernels/check_shape.h"
#include "kernels/optimizer/adafactor.h"
#include "kernels/optimizer/muon.h"

namespace hone {

inline DType storage_of(const Tensor& x) { return x.dtype == DType::bf16 ? DType::bf16 : DType::f32; }

inline void check(const MuonMomentum& args) {
  const int64_t count = args.grad.dim(0);
  check_shape(muon_momentum, "grad", args.grad, {count});
  check_shape(muon_momentum, "update", args.update, {count});
  check_shape(muon_momentum, "buffer", args.buffer, {count}, storage_of(args.buffer));
  check_shape(muon_momentum, "clip", args.clip, {1});
}

inline void check(const MuonNormalize& args) {
  const int64_t rows = args.update.dim(0), cols = args.update.dim(1);
  check_shape(muon_normalize, "update", args.update, {rows, cols});
  if (args.transposed)
    check_shape(muon_normalize, "x", args.x, {cols, rows}, storage_of(args.x));
  else
    check_shape(muon_normalize, "x", args.x, {rows, cols}, storage_of(args.x));
  check_shape(muon_normalize, "squares", args.squares, {1}, DType::f64);
}

inline void check(const ScaledSum& args) {
  check_shape(scaled_sum, "y", args.y, {args.y.dim(0)}, storage_of(args.y));
  check_shape(scaled_sum, "x", args.x, {args.y.dim(0)}, storage_of(args.x));
}

inline void check(const MuonApply& args) {
  const int64_t count = args.value.dim(0);
  check_shape(muon_apply, "value", args.value, {count});
  check_optional(muon_apply, "rounded", args.rounded, {count}, DType::bf16);
  check_shape(muon_apply, "direction", args.direction, {args.direction.dim(0), args.direction.dim(1)},
              storage_of(args.direction));
  HONE_CHECK(args.first >= 0 && args.first + count <= args.direction.size(), "op muon_apply: elements ", args.first,
             " to ", args.first + count, " of a matrix of ", args.direction.size());
}

inline void check(const AdafactorFactored& args) {
  const int64_t rows = args.grad.dim(0), cols = args.grad.dim(1);
  check_shape(adafactor_factored, "grad", args.grad, {rows, cols});
  check_shape(adafactor_factored, "update", args.update, {rows, cols});
  check_shape(adafactor_factored, "row", args.row, {rows});
  check_shape(adafactor_factored, "col", args.col, {cols});
  check_shape(adafactor_factored, "clip", args.clip, {1});
}

inline void check(const AdafactorVector& args) {
  const int64_t count = args.grad.dim(0);
  check_shape(adafactor_vector, "grad", args.grad, {count});
  check_shape(adafactor_vector, "update", args.update, {count});
  check_shape(adafactor_vector, "square", args.square, {count});
  check_shape(adafactor_vector, "clip", args.clip, {1});
}

inline void check(const AdafactorApply& args) {
  const int64_t count = args.value.dim(0);
  check_shape(adafactor_apply, "value", args.value, {count});
  check_optional(adafactor_apply, "rounded", args.rounded, {count}, DType::bf16);
  check_optional(adafactor_apply, "mean", args.mean, {count});
  check_shape(adafactor_apply, "update", args.update, {count});
  check_shape(adafactor_apply, "squares", args.squares, {1}, DType::f64);
  check_optional(adafactor_apply, "value_squares", args.value_squares, {1}, DType::f64);
}

}  // namespace hone
