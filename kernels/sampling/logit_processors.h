#pragma once
// Logit processors of a decode loop that runs without the host: they change single logits before sampling (biases,
// penalties, ids that must not be sampled yet), restore them afterwards, and count the sampled tokens.
#include "kernels/op.h"
#include "kernels/sampling/row_params.h"

namespace hone {

// S rows of at most E adjustments, an id at most once per row. Ids outside of the logits and a repetition_penalty of 0
// or less are Errors; on a GPU such ids are skipped and penalties are not checked.
struct LogitAdjustments {
  Tensor edits;  // u8 [S * E * sizeof(LogitAdjustment)]
  Tensor rows;   // u8 [S * sizeof(RowPenalties)]
  explicit operator bool() const { return static_cast<bool>(rows); }
  // The part of `count` rows from row `first` on, of S rows.
  LogitAdjustments of(int64_t first, int64_t count, int64_t S) const {
    const auto part = [&](Tensor all) { return all.rows(first * (all.size() / S), count * (all.size() / S)); };
    return {part(edits), part(rows)};
  }
};

// logits [S, V] f32 are updated, and `was` of the adjustments is written. The new logit of an adjusted id is, with
// z = logits[row, id] + bias (-infinity if it must not be sampled yet):
//   z                                                                    if it is not penalized
//   (z > 0 ? z / repetition_penalty : z * repetition_penalty) - minus    if it is
// minus is 0 if times is 0, else frequency_penalty * times + presence_penalty in f64, rounded to f32. Each operation is
// rounded.
inline constinit Op<void(Tensor logits, LogitAdjustments edits)> apply_logit_processors{"apply_logit_processors"};
// Restores the logits from before apply_logit_processors.
inline constinit Op<void(Tensor logits, LogitAdjustments edits)> restore_logits{"restore_logits"};
// Updates the rows after ids [S] i32 were sampled. In rows with `counts`, times of the id goes up by one; an id without
// an adjustment takes an unused one, which must exist. stops_after goes down by one, to 0 at least. An id below 0 (a
// row without a distribution) is not counted.
inline constinit Op<void(LogitAdjustments edits, Tensor ids)> count_sampled_tokens{"count_sampled_tokens"};

// Returns E, the number of adjustments per row. Throws Error for shapes that disagree.
int64_t check_edits(const OpBase& op, const LogitAdjustments& edits, int64_t S);

}  // namespace hone
