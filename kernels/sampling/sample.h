#pragma once
// Draws from logits. A row's draw depends on its logits, its parameters and (seed, stream, position) alone.
#include "kernels/op.h"

namespace hone {

// One row's parameters. temperature 0 is greedy (ties to the lowest id), and its log-probs are those of temperature 1.
struct RowSamplingParams {
  float temperature = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;                            // 0 = all
  uint64_t seed = 0, stream = 0, position = 0;  // the Philox draw
};

// What a row's logits are multiplied by; the learner hands the same to logprob_forward.
inline float inverse_temperature(float temperature) { return temperature == 0 ? 1 : 1 / temperature; }

// The tokens that may be drawn: the top_k most likely (ties to the lower id); of these, most likely first, the shortest
// run that holds at least top_p of their mass; of these, those at least min_p times as likely as the most likely one.
// One uniform draw then picks by cumulated mass in ascending id. A row whose logits hold a NaN or +infinity, or nothing
// but -infinity, is an Error. On a GPU, where a body cannot throw, such a row's id is -1 and its log-probs are NaN, and
// params are not checked: both are the caller's, on the host.
//
// logits [S, V] f32 (penalties and biases already applied); params: u8 [S * sizeof(RowSamplingParams)].
// ids [S] i32; logp [S] f32: log_softmax(logits / temperature)[id], before truncation, with logprob_forward's bits;
// truncated_logp [S] f32: after top-k, then top-p, then min-p (the distribution drawn from); raw_logp [S] f32:
// log_softmax(logits)[id].
inline constinit Op<void(Tensor ids, Tensor logp, Tensor truncated_logp, Tensor raw_logp, Tensor logits, Tensor params)>
    sample_rows{"sample_rows"};

}  // namespace hone
