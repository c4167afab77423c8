#pragma once
#include "kernels/op.h"

namespace hone {

// y[r,:] = (x[r,:] - mean[r]) * rstd[r] * w + b,  rstd[r] = 1 / sqrt(var(x[r,:]) + eps), variance over dim without
// correction (Ba et al. 2016) y is written; mean, rstd [rows] f32 are written, or both empty. x, y: [rows, dim]; w:
// [dim]; b: [dim] or empty.
inline constinit Op<void(Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b, float eps)>
    layernorm_forward{"layernorm_forward"};
// dx is added to when accumulate, else written; dw, db are added to, or empty (no bias, a frozen weight).
inline constinit Op<void(Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor w,
                         bool accumulate)>
    layernorm_backward{"layernorm_backward"};

}  // namespace hone
