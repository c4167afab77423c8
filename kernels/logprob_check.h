#pragma once
// What every CPU body of the head checks of its arguments.
#include "kernels/gemm_check.h"
#include "kernels/logprob.h"

namespace hone {

// Throws Error unless the shapes and dtypes agree and every target is in the vocabulary.
inline void check_logprob(const char* op, const Tensor& hidden, const Tensor& w, const Tensor& targets, const Tensor& logp, const Tensor& lse, const Tensor& entropy,
                          float inv_temperature) {
  check_matrix(op, "w", w, w.dim(0), w.dim(1));
  check_matrix(op, "hidden", hidden, hidden.dim(0), w.dim(1));
  const int64_t R = hidden.dim(0), V = w.dim(0);
  HONE_CHECK(logp && lse, op, ": logp and lse must be given");
  check_vector(op, "logp", logp, R);
  check_vector(op, "lse", lse, R);
  check_vector(op, "entropy", entropy, R);
  HONE_CHECK(targets.rank == 1 && targets.dtype == DType::i32 && targets.dim(0) == R, op, ": targets are not i32 [", R, "]");
  HONE_CHECK(inv_temperature > 0, op, ": inverse temperature is ", inv_temperature, ", not positive");
  for (int64_t r = 0; r < R; ++r) {
    const int32_t target = targets.ptr<int32_t>()[r];
    HONE_CHECK(target >= 0 && target < V, op, ": targets[", r, "] is ", target, ", the vocabulary has ", V);
  }
}
inline void check_logprob_grad(const char* op, const Tensor& dhidden, const Tensor& dw, const LogprobGrad& grad, const Tensor& hidden, const Tensor& w) {
  check_matrix(op, "dhidden", dhidden, hidden.dim(0), hidden.dim(1));
  check_matrix(op, "dw", dw, w.dim(0), w.dim(1));
  check_vector(op, "dlogp", grad.logp, hidden.dim(0));
  check_vector(op, "dentropy", grad.entropy, hidden.dim(0));
}

}  // namespace hone
