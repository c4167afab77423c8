#pragma once
// Logit processors of a decode loop that runs without the host: they change single logits before sampling (biases,
// penalties, ids that must not be sampled yet), restore them afterwards, and count the sampled tokens.
#include "kernels/op.h"

namespace hone {

// The change of one logit of a row.
struct LogitAdjustment {
  int32_t id = -1;     // -1: unused; unused ones follow the others of the row
  int32_t times = -1;  // number of times it was sampled; 0: penalized because the prompt has it; -1: not penalized
  float bias = 0;
  int32_t stops = 0;  // 1: must not be sampled while RowPenalties::stops_after is above 0
  float was = 0;      // the original logit, between apply_logit_processors and restore_logits
};
// The penalties of a row.
struct RowPenalties {
  double frequency_penalty = 0, presence_penalty = 0;
  float repetition_penalty = 1;  // above 0
  int32_t counts = 0;            // 1: sampled tokens are penalized from then on
  int32_t stops_after = 0;       // tokens to sample before ids with `stops` may be sampled
};

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
