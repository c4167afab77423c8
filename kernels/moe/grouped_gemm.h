#pragma once
// Matrix products of the experts of a mixture: each row is multiplied by the matrix of its expert. Rows are sorted by
// expert: expert e has rows offsets[e] .. offsets[e + 1] (kernels/moe/dispatch.h). The matrices of the experts are one
// tensor w [E, N, K], whose row stride may exceed N * K.
//
// Forward has the bits of gemm_forward: a row of y depends on its row of x and its expert's matrix alone. Only the
// matrices of experts with rows are read. Backward is deterministic.
#include "kernels/grad_target.h"
#include "kernels/op.h"

namespace hone {

// y[r] = x[r] . w_e^T for the rows of expert e; rows from offsets[E] on are 0. With `accumulate` y[r] is added, as the
// residual of gemm_forward, and rows from offsets[E] on stay.
struct GroupedGemmForward {
  Tensor y;        // [P, N]
  Tensor x;        // [P, K]
  Tensor w;        // [E, N, K]
  Tensor offsets;  // [E + 1] i32
  bool accumulate = false;
  static constexpr auto access =
      op_access(added_once_if(&GroupedGemmForward::accumulate, &GroupedGemmForward::y),
                read(&GroupedGemmForward::x, &GroupedGemmForward::w, &GroupedGemmForward::offsets));
};
inline constinit Op<GroupedGemmForward> grouped_gemm_forward{"grouped_gemm_forward"};

// dx[r] = dy[r] . w_e. Rows from offsets[E] on are 0.
struct GroupedGemmBackwardInput {
  Tensor dx;       // [P, K]
  Tensor dy;       // [P, N]
  Tensor w;        // [E, N, K]
  Tensor offsets;  // [E + 1] i32
  static constexpr auto access =
      op_access(written(&GroupedGemmBackwardInput::dx),
                read(&GroupedGemmBackwardInput::dy, &GroupedGemmBackwardInput::w, &GroupedGemmBackwardInput::offsets));
};
inline constinit Op<GroupedGemmBackwardInput> grouped_gemm_backward_input{"grouped_gemm_backward_input"};

// The gradient of w_e: dy_e^T . x_e over the rows of expert e, written or added. Rows from offsets[E] on do not count.
// An expert without rows gets 0, or keeps its sum. The CUDA bodies add once to each element (kernels/adds_once.h). What
// they write is 0 + dy_e^T . x_e, never -0 (train/gradient_sum.h).
struct GroupedGemmBackwardWeight {
  GradTarget dw;   // [E, N, K]
  Tensor dy;       // [P, N]
  Tensor x;        // [P, K]
  Tensor offsets;  // [E + 1] i32
  static constexpr auto access = op_access(
      parts(&GroupedGemmBackwardWeight::dw),
      read(&GroupedGemmBackwardWeight::dy, &GroupedGemmBackwardWeight::x, &GroupedGemmBackwardWeight::offsets));
};
inline constinit Op<GroupedGemmBackwardWeight> grouped_gemm_backward_weight{"grouped_gemm_backward_weight"};

// Throw Error if shapes or dtypes do not fit: for the bodies.
void check_grouped_gemm(const GroupedGemmForward& args);
void check_grouped_gemm(const GroupedGemmBackwardInput& args);
void check_grouped_gemm(const GroupedGemmBackwardWeight& args);
// For memory of the host: offsets start at 0, never fall and end at `rows` at most.
void check_grouped_rows(const OpBase& op, const Tensor& offsets, int64_t rows);

// The matrix [N, K] of an expert.
inline Tensor expert_matrix(const Tensor& w, int64_t expert) {
  Tensor out(w.data, w.dtype, w.device, {w.dim(1), w.dim(2)});
  if (w.data) out.data = static_cast<char*>(w.data) + static_cast<size_t>(expert * w.row_stride) * size_of(w.dtype);
  return out;
}

}  // namespace hone
