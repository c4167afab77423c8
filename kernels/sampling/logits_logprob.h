#pragma once
// What rows of logits say of given tokens, and which tokens they hold likeliest.
#include "kernels/op.h"

namespace hone {

inline constexpr int64_t max_top_logprobs = 64;

// logits [S, V] f32; ids [S] i32; params as sample_rows has them, of which the temperature is read.
// logp [S] f32: log_softmax(logits / temperature)[ids]; raw_logp [S] f32: log_softmax(logits)[ids]; both with the bits
// of sample_rows and logprob_forward. top_ids [S, n] i32, top_logp [S, n] f32, n in [0, min(V, 64)]: the n largest
// logits (ties to the lower id), largest first, and log_softmax(logits) of them. An id outside the vocabulary has NaN.
// A row whose logits hold a NaN or +infinity, or nothing but -infinity, has NaN everywhere and top_ids of -1.
inline constinit Op<void(Tensor logp, Tensor raw_logp, Tensor top_ids, Tensor top_logp, Tensor logits, Tensor ids,
                         Tensor params)>
    logits_logprob{"logits_logprob"};

// Throws Error for shapes that disagree.
void check_score_rows(const Tensor& logp, const Tensor& raw_logp, const Tensor& top_ids, const Tensor& top_logp,
                      const Tensor& logits, const Tensor& ids, const Tensor& params);

}  // namespace hone
