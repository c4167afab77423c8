#pragma once
#include "kernels/op.h"

namespace hone {

// y[r,:] = x[r,:] * rstd[r] * w,  rstd[r] = 1 / sqrt(mean(x[r,:]^2) + eps)  (Zhang and Sennrich 2019)
// y is written (may be x itself); rstd [rows] f32 is written, or empty. x, y: [rows, dim]; w: [dim].
inline constinit Op<void(Tensor y, Tensor rstd, Tensor x, Tensor w, float eps)> rmsnorm_forward{"rmsnorm_forward"};
// dx [rows, dim] is added to when accumulate (the residual branch), else written; dw [dim] is added to, or empty (a
// frozen weight).
inline constinit Op<void(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w, bool accumulate)>
    rmsnorm_backward{"rmsnorm_backward"};

}  // namespace hone
