#pragma once
// Log-probs of given tokens under rows of logits, and the most likely tokens of each row.
#include "kernels/op.h"

namespace hone {

inline constexpr int64_t max_top_logprobs = 64;

// logp and raw_logp have the bits of sample_rows and logprob_forward. An id outside of the vocabulary has NaN. A row
// whose logits hold a NaN or +infinity, or only -infinity, has NaN everywhere and top_ids of -1.
struct LogitsLogprob {
  Tensor logp;      // [S] f32, written: log_softmax(logits / temperature)[ids]
  Tensor raw_logp;  // [S] f32, written: log_softmax(logits)[ids]
  Tensor top_ids;   // [S, n] i32, written: the n largest logits, largest first (ties to the lower id)
  Tensor top_logp;  // [S, n] f32, written: log_softmax(logits) of top_ids; n in [0, min(V, max_top_logprobs)]
  Tensor logits;    // [S, V] f32
  Tensor ids;       // [S] i32
  Tensor params;    // as sample_rows takes them; the temperature is read
  static constexpr auto access = op_access(
      written(&LogitsLogprob::logp, &LogitsLogprob::raw_logp, &LogitsLogprob::top_ids, &LogitsLogprob::top_logp),
      read(&LogitsLogprob::logits, &LogitsLogprob::ids, &LogitsLogprob::params));
};
inline constinit Op<LogitsLogprob> logits_logprob{"logits_logprob"};

// Throws Error for shapes that disagree.
void check_score_rows(const LogitsLogprob& args);

}  // namespace hone
