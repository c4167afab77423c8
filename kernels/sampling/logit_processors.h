#pragma once
// Changes single logits before a draw (biases, penalties, ids that must not be drawn yet), puts them back after it, and
// counts what was drawn: what a decoding loop needs to go on without the host.
#include "kernels/op.h"

namespace hone {

// An id whose logit a row changes.
struct LogitAdjustment {
  int32_t id = -1;     // -1: none; behind the last one of a row there are none
  int32_t times = -1;  // how often it was drawn; 0: penalised for the prompt's sake; -1: not penalised
  float bias = 0;
  int32_t stops = 0;  // 1: may not be drawn while RowPenalties::stops_after is above 0
  float was = 0;      // its logit, from apply_logit_processors to restore_logits
};
// How a row's logits change.
struct RowPenalties {
  double frequency_penalty = 0, presence_penalty = 0;
  float repetition_penalty = 1;  // above 0
  int32_t counts = 0;            // 1: what is drawn is penalised from then on
  int32_t stops_after = 0;       // draws
};

// S rows of at most E edits, an id at most once a row. edits: u8 [S * E * sizeof(LogitAdjustment)]; rows: u8 [S *
// sizeof(RowPenalties)]. Ids outside of the logits, and a repetition_penalty of 0 or less, are Errors; on a GPU such
// ids are passed over, and penalties not checked.
struct LogitAdjustments {
  Tensor edits, rows;
  explicit operator bool() const { return static_cast<bool>(rows); }
  // Of `count` rows from `first` on, of S.
  LogitAdjustments of(int64_t first, int64_t count, int64_t S) const {
    const auto part = [&](Tensor all) { return all.rows(first * (all.size() / S), count * (all.size() / S)); };
    return {part(edits), part(rows)};
  }
};

// With z = logits[row, id] + bias (-infinity instead of the bias where it may not be drawn yet), an id that is
// penalised has (z > 0 ? z / repetition_penalty : z * repetition_penalty) - minus, another one z; minus is 0 where
// times is, else frequency_penalty * times + presence_penalty in f64, rounded to f32. Each operation is rounded. logits
// [S, V] f32; the edits' `was` is written.
inline constinit Op<void(Tensor logits, LogitAdjustments edits)> apply_logit_processors{"apply_logit_processors"};
// The logits as they were before apply_logit_processors.
inline constinit Op<void(Tensor logits, LogitAdjustments edits)> restore_logits{"restore_logits"};
// The rows after a draw of ids [S] i32: times of the drawn id is one more in rows that count, at a new edit where it
// has none, for which there must be room; stops_after is one less, not below 0. An id below 0 (nothing could be drawn)
// counts nothing.
inline constinit Op<void(LogitAdjustments edits, Tensor ids)> count_sampled_tokens{"count_sampled_tokens"};

// How many edits a row has room for. Throws Error for shapes that disagree.
int64_t check_edits(const OpBase& op, const LogitAdjustments& edits, int64_t S);

}  // namespace hone
