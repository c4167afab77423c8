#pragma once
// The parts that bodies of the lm_head ops share: argument checks, the two halves of logprob_fused, and the CUDA passes
// over logits.
#include "kernels/check_shape.h"
#include "kernels/lm_head/logprob.h"

namespace hone {

// CPU bodies: shapes and dtypes agree, and each target is in the vocabulary.
inline void check_head(const OpBase& op, const Tensor& hidden, const Tensor& w, const Tensor& targets,
                       float inv_temperature) {
  const int64_t R = hidden.dim(0), V = w.dim(0), D = w.dim(1);
  check_shape(op, "w", w, {V, D});
  check_shape(op, "hidden", hidden, {R, D});
  check_shape(op, "targets", targets, {R}, DType::i32);
  check_indices(op, "targets", targets, V);
  HONE_CHECK(inv_temperature > 0, op.name(), ": inverse temperature is ", inv_temperature, ", not positive");
}
inline void check_head_gradient(const OpBase& op, const Tensor& dhidden, const GradTarget& dw, const LogprobGrad& grad,
                                const Tensor& hidden, const Tensor& w) {
  const int64_t R = hidden.dim(0);
  check_shape(op, "dhidden", dhidden, {R, w.dim(1)});
  check_optional(op, "dw", dw.sum, {w.dim(0), w.dim(1)});
  check_shape(op, "dlogp", grad.logp, {R});
  check_optional(op, "dentropy", grad.entropy, {R});
}

inline void check_logprob_forward(const LogprobForward& args) {
  check_head(logprob_forward, args.hidden, args.w, args.targets, args.inv_temperature);
  check_shape(logprob_forward, "logp", args.logp, {args.hidden.dim(0)});
  check_shape(logprob_forward, "lse", args.lse, {args.hidden.dim(0)});
  check_optional(logprob_forward, "entropy", args.entropy, {args.hidden.dim(0)});
  check_optional(logprob_forward, "hit", args.hit, {args.hidden.dim(0)});
}
inline void check_logprob_backward(const LogprobBackward& args) {
  check_head(logprob_backward, args.hidden, args.w, args.targets, args.inv_temperature);
  check_head_gradient(logprob_backward, args.dhidden, args.dw, args.grad, args.hidden, args.w);
  check_shape(logprob_backward, "lse", args.lse, {args.hidden.dim(0)});
  check_optional(logprob_backward, "entropy", args.entropy, {args.hidden.dim(0)});
  HONE_CHECK(!args.grad.entropy || args.entropy,
             "logprob_backward: a gradient of entropy needs the entropy of forward");
}
inline void check_logprob_fused(const LogprobFused& args) {
  check_head(logprob_fused, args.hidden, args.w, args.targets, args.inv_temperature);
  check_head_gradient(logprob_fused, args.dhidden, args.dw, args.grad, args.hidden, args.w);
  check_shape(logprob_fused, "logp", args.logp, {args.hidden.dim(0)});
  check_shape(logprob_fused, "lse", args.lse, {args.hidden.dim(0)});
  check_optional(logprob_fused, "hit", args.hit, {args.hidden.dim(0)});
}

// logprob_fused is this forward, then this backward. entropy: [R] f32, or empty without a gradient of entropy.
LogprobForward forward_of(const LogprobFused& args, Tensor entropy);
LogprobBackward backward_of(const LogprobFused& args, Tensor entropy);

// The CUDA passes. A block of logits [rows, columns] begins at a column of the vocabulary that is a multiple of a chunk
// (kernels/lm_head/logsumexp.cuh). Rows count from the first row of HeadRows.

// The columns of a range of rows: [rows] f32 each, but targets are i32.
struct HeadRows {
  Tensor targets;
  Tensor dlogp, dentropy;          // gradient of the loss; dentropy may be empty
  Tensor logp, lse, entropy, hit;  // entropy and hit may be empty
  Tensor chunks;                   // [rows, 2 * chunks]: (max, sum) of each chunk
  Tensor chunk_weighted;           // [rows, chunks]: LogSumExp::weighted of each chunk; or empty
  Tensor target_z;                 // logit of the target, times the inverse temperature
  Tensor guess, scale;             // see head_exponentials
  float inv_temperature = 1, z_loss = 0;
};

// Writes the chunk sums of the block of logits, and target_z of the rows whose target is in it.
void head_sums(Context& context, const HeadRows& rows, Tensor logits, int64_t first);
// Computes lse and, unless empty, logp, entropy and hit from all chunk sums.
void head_finish(Context& context, const HeadRows& rows, int64_t V);

// Writes the gradient of the logits, in its own dtype. lse (and entropy) are known.
void head_gradient(Context& context, const HeadRows& rows, Tensor gradient, Tensor logits, int64_t first);

// The gradient in one pass over the logits, before lse is known:
// 1. head_guess writes `guess`, an estimate of lse.
// 2. head_exponentials writes the chunk sums and numbers = exp(z - guess).
// 3. head_scale, after all columns of a row, corrects the target's number and computes `scale`, so that
//    dlogits = scale * numbers. It also writes scaled = scale * hidden. A row with a bad guess, or whose gradient is
//    not close to a multiple of p, is computed again with scale 1.
void head_guess(Context& context, const HeadRows& rows, Tensor hidden, Tensor w);
void head_exponentials(Context& context, const HeadRows& rows, Tensor numbers, Tensor logits, int64_t first);
void head_scale(Context& context, const HeadRows& rows, Tensor numbers, Tensor scaled, Tensor hidden, Tensor w);

// The same for all columns at once, from hidden and w: the logits stay in registers and have gemm_forward's bits.
// logprob_sm90.cu sets it; without Hopper code it is nullptr.
struct LmHeadDirect {
  // True for bf16 matrices that TMA can read, with enough rows for a tile and enough columns, if the device runs Hopper
  // bodies.
  bool (*accepts)(const Tensor& hidden, const Tensor& w);
  void (*sums)(Context& context, const HeadRows& rows, Tensor hidden, Tensor w);
  void (*exponentials)(Context& context, const HeadRows& rows, Tensor numbers, Tensor hidden, Tensor w);
  void (*gradient)(Context& context, const HeadRows& rows, Tensor gradient, Tensor hidden, Tensor w);
};
inline constinit const LmHeadDirect* lm_head_direct = nullptr;
inline bool head_is_direct(const Tensor& hidden, const Tensor& w) {
  return lm_head_direct && lm_head_direct->accepts(hidden, w);
}

// y[r] = scale[r] * x[r], in y's dtype.
void scale_rows(Context& context, Tensor y, Tensor x, Tensor scale);

}  // namespace hone
