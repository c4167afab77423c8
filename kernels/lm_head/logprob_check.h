#pragma once
// What every CPU body of the head checks of its arguments: shapes and dtypes agree, every target is in the vocabulary.
#include "kernels/check_shape.h"
#include "kernels/lm_head/logprob.h"

namespace hone {

inline void check_head(const OpBase& op, const Tensor& hidden, const Tensor& w, const Tensor& targets,
                       float inv_temperature) {
  const int64_t R = hidden.dim(0), V = w.dim(0), D = w.dim(1);
  check_shape(op, "w", w, {V, D});
  check_shape(op, "hidden", hidden, {R, D});
  check_shape(op, "targets", targets, {R}, DType::i32);
  check_indices(op, "targets", targets, V);
  HONE_CHECK(inv_temperature > 0, op.name(), ": inverse temperature is ", inv_temperature, ", not positive");
}
inline void check_head_gradient(const OpBase& op, const Tensor& dhidden, const Tensor& dw, const LogprobGrad& grad,
                                const Tensor& hidden, const Tensor& w) {
  const int64_t R = hidden.dim(0);
  check_shape(op, "dhidden", dhidden, {R, w.dim(1)});
  check_optional(op, "dw", dw, {w.dim(0), w.dim(1)});
  check_shape(op, "dlogp", grad.logp, {R});
  check_optional(op, "dentropy", grad.entropy, {R});
}

inline void check_logprob_forward(const Tensor& logp, const Tensor& lse, const Tensor& entropy, const Tensor& hidden,
                                  const Tensor& w, const Tensor& targets, float inv_temperature) {
  check_head(logprob_forward, hidden, w, targets, inv_temperature);
  check_shape(logprob_forward, "logp", logp, {hidden.dim(0)});
  check_shape(logprob_forward, "lse", lse, {hidden.dim(0)});
  check_optional(logprob_forward, "entropy", entropy, {hidden.dim(0)});
}
inline void check_logprob_backward(const Tensor& dhidden, const Tensor& dw, const LogprobGrad& grad, const Tensor& lse,
                                   const Tensor& entropy, const Tensor& hidden, const Tensor& w, const Tensor& targets,
                                   float inv_temperature) {
  check_head(logprob_backward, hidden, w, targets, inv_temperature);
  check_head_gradient(logprob_backward, dhidden, dw, grad, hidden, w);
  check_shape(logprob_backward, "lse", lse, {hidden.dim(0)});
  check_optional(logprob_backward, "entropy", entropy, {hidden.dim(0)});
  HONE_CHECK(!grad.entropy || entropy, "logprob_backward: a gradient of entropy needs the entropy of forward");
}
inline void check_logprob_fused(const Tensor& logp, const Tensor& lse, const Tensor& dhidden, const Tensor& dw,
                                const LogprobGrad& grad, const Tensor& hidden, const Tensor& w, const Tensor& targets,
                                float inv_temperature) {
  check_head(logprob_fused, hidden, w, targets, inv_temperature);
  check_head_gradient(logprob_fused, dhidden, dw, grad, hidden, w);
  check_shape(logprob_fused, "logp", logp, {hidden.dim(0)});
  check_shape(logprob_fused, "lse", lse, {hidden.dim(0)});
}

}  // namespace hone
