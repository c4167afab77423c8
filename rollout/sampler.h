#pragma once
// From hidden states to drawn tokens and scored ones.
#include <span>
#include <vector>

#include "model/model.h"
#include "rollout/sampling_state.h"

namespace hone {

// Of each row: the id drawn and its log-probs (Reply says of which distributions).
struct SampledTokens {
  std::vector<int32_t> ids;
  std::vector<float> logp, truncated_logp, raw_logp;
  std::vector<std::vector<TokenLogp>> top_logprobs;  // empty unless asked for
};

// Room on a device for what is drawn of S rows and their `top` likeliest ids, in one piece.
class SampledTokenBuffer {
 public:
  // Numbers of such a piece.
  static int64_t size(int64_t S, int64_t top) { return S * (4 + 2 * top); }
  // all: i32 [size(S, top)].
  SampledTokenBuffer(Tensor all, int64_t S, int64_t top) : all_(all), S_(S), top_(top) {}
  Tensor all() const { return all_; }
  int64_t top() const { return top_; }
  Tensor ids() const { return part(0, 1, DType::i32); }
  Tensor logp() const { return part(1, 1, DType::f32); }
  Tensor truncated_logp() const { return part(2, 1, DType::f32); }
  Tensor raw_logp() const { return part(3, 1, DType::f32); }
  Tensor top_ids() const { return part(4, top_, DType::i32).view({S_, top_}); }
  Tensor top_logp() const { return part(4 + top_, top_, DType::f32).view({S_, top_}); }
  // What the first `count` rows drew, of a host copy of all(). A row that had no distribution is an Error.
  SampledTokens read(const int32_t* copy, int64_t count) const;

 private:
  Tensor part(int64_t column, int64_t columns, DType dtype) const {
    Tensor out = all_.rows(column * S_, columns * S_);
    out.dtype = dtype;
    return out;
  }
  Tensor all_;
  int64_t S_, top_;
};

// What rows are drawn by, on the device: of S rows (kernels/sampling/sample.h, logit_processors.h).
struct SamplingTables {
  Tensor params;
  LogitAdjustments edits{};  // none: no row's logits are changed
};

// The logits of hidden [S, D], and what is drawn from them: queued, without the host. Edits change what is drawn and
// truncated_logp only.
void sample_tokens(Context& context, Model& model, const SampledTokenBuffer& out, Tensor hidden,
                   const SamplingTables& tables);
// The same for rows that the host describes, with as many likeliest ids as the one that asks for most; waits for the
// result.
SampledTokens draw(Context& context, Model& model, Tensor hidden, std::span<const SamplingState> rows);

// What hidden [S, D] says of given ids [S], at temperature 1: logp and the likeliest ids. Waits for the result.
struct PromptLogprobs {
  std::vector<float> logp;
  std::vector<std::vector<TokenLogp>> top_logprobs;  // empty unless asked for
};
PromptLogprobs prompt_logprobs(Context& context, Model& model, Tensor hidden, std::span<const int32_t> ids,
                               int64_t top_logprobs);

}  // namespace hone
