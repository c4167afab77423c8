#pragma once
// Samples tokens from logits. A row's token depends on its logits, its parameters and (seed, stream, position) alone.
#include "kernels/op.h"
#include "kernels/sampling/row_params.h"

namespace hone {

// Candidates are the top_k most likely tokens (ties to the lower id); of these, most likely first, the shortest prefix
// that holds at least top_p of their probability; of these, the tokens at least min_p times as likely as the most
// likely one. One uniform number then selects by cumulated probability in ascending id. A row whose logits hold a NaN
// or +infinity, or only -infinity, is an Error, and so are parameters out of range. A GPU body cannot throw: there such
// a row has the id -1 and log-probs of NaN, and params are not checked.
struct SampleRows {
  Tensor ids;             // [S] i32, written
  Tensor logp;            // [S] f32, written: log_softmax(logits / temperature)[id], with logprob_forward's bits
  Tensor truncated_logp;  // [S] f32, written: the same after top-k, then top-p, then min-p
  Tensor raw_logp;        // [S] f32, written: log_softmax(logits)[id]
  Tensor logits;          // [S, V] f32, penalties and biases applied
  Tensor params;          // u8 [S * sizeof(RowSamplingParams)]
  static constexpr auto access =
      op_access(written(&SampleRows::ids, &SampleRows::logp, &SampleRows::truncated_logp, &SampleRows::raw_logp),
                read(&SampleRows::logits, &SampleRows::params));
};
inline constinit Op<SampleRows> sample_rows{"sample_rows"};

}  // namespace hone
