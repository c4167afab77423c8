#pragma once
// RMSNorm (Zhang and Sennrich 2019): y[r, :] = x[r, :] * rstd[r] * (w + offset) with
// rstd[r] = 1 / sqrt(mean(x[r, :]^2) + eps). The offset is 0, or 1 for weights stored around zero (Gemma).
#include "kernels/op.h"

namespace hone {

// y [rows, dim] is written and may be x; rstd [rows] f32 is written, or empty. x: [rows, dim]; w: [dim].
inline constinit Op<void(Tensor y, Tensor rstd, Tensor x, Tensor w, float eps, float offset)> rmsnorm_forward{
    "rmsnorm_forward"};

struct RmsnormBackward {
  Tensor dx;     // [rows, dim], added to if accumulate (the residual branch), else written
  Tensor dw{};   // [dim] f32, added to; empty for a frozen weight
  Tensor dy, x;  // [rows, dim]
  Tensor rstd;   // of rmsnorm_forward
  Tensor w;      // [dim]
  bool accumulate = false;
  float offset = 0;
  static constexpr auto access =
      op_access(added_once_if(&RmsnormBackward::accumulate, &RmsnormBackward::dx), added(&RmsnormBackward::dw),
                read(&RmsnormBackward::dy, &RmsnormBackward::x, &RmsnormBackward::rstd, &RmsnormBackward::w));
};
inline constinit Op<RmsnormBackward> rmsnorm_backward{"rmsnorm_backward"};

}  // namespace hone
