#pragma once
// What every body of qkv_forward and qkv_backward checks of its arguments at entry. Heads, norms and cache hold
// `dtype`; positions and slots are followed to their values only where the host can read them.
#include "kernels/rope/qkv.h"

namespace hone {

void check_qkv_forward(const Tensor& q, const Tensor& k, const Tensor& rstd, const Tensor& qkv, const Tensor& positions,
                       const Tensor& cos_sin, const Tensor& q_norm, const Tensor& k_norm, const QkvShape& shape,
                       const KvWriteTarget& cache, DType dtype);
void check_qkv_backward(const Tensor& dqkv, const Tensor& dq_norm, const Tensor& dk_norm, const Tensor& dq,
                        const Tensor& dk, const Tensor& rstd, const Tensor& qkv, const Tensor& positions,
                        const Tensor& cos_sin, const Tensor& q_norm, const Tensor& k_norm, const QkvShape& shape,
                        DType dtype);

}  // namespace hone
