#pragma once
// From hidden states to drawn tokens and scored ones.
#include <span>
#include <vector>

#include "core/model/model.h"
#include "kernels/sample.h"
#include "kernels/sample_edit.h"
#include "rollout/engine.h"

namespace hone {

// Of each row: the id drawn and its log-probs (Reply says of which distributions).
struct Drawn {
  std::vector<int32_t> ids;
  std::vector<float> logp, truncated_logp, raw_logp;
  std::vector<std::vector<TokenLogp>> top_logprobs;  // empty unless asked for
};

// Room on a device for what sample_rows writes, in one piece: [4, S], ids in the first row.
struct DrawnRows {
  Tensor all;  // i32 [4, S]
  explicit DrawnRows(Tensor rows) : all(rows) {}
  Tensor ids() const { return all.rows(0, 1).view({all.dim(1)}); }
  Tensor column(int64_t i) const {  // 1 logp, 2 truncated_logp, 3 raw_logp
    Tensor out = all.rows(i, 1).view({all.dim(1)});
    out.dtype = DType::f32;
    return out;
  }
};
// Adds the first `count` columns of a host copy of DrawnRows::all, `width` columns wide. A row that had no distribution is an Error.
void append_drawn(Drawn& out, const int32_t* rows, int64_t count, int64_t width);

// logits of hidden [S, D], and what is drawn from them: queued, without the host.
void draw_rows(Context& context, Model& model, DrawnRows out, Tensor hidden, Tensor params);

// The same with what the host alone knows: edits are of these rows' logits (kernels/sample_edit.h) and change what is drawn and truncated_logp only;
// top_logprobs of each row. Waits for the result. Draws with the bits of draw_rows where nothing is edited.
Drawn draw(Context& context, Model& model, Tensor hidden, std::span<const SampleParams> params, std::span<const LogitEdit> edits,
           int64_t top_logprobs);

// What hidden [S, D] says of given ids [S], at temperature 1: logp and the likeliest ids. Waits for the result.
struct Scored {
  std::vector<float> logp;
  std::vector<std::vector<TokenLogp>> top_logprobs;  // empty unless asked for
};
Scored score(Context& context, Model& model, Tensor hidden, std::span<const int32_t> ids, int64_t top_logprobs);

}  // namespace hone
