// CPU specification of the logit processors.
#include "kernels/sampling/logit_processors.h"

#include <algorithm>
#include <limits>

#include "kernels/check_shape.h"

namespace hone {

int64_t check_edits(const OpBase& op, const LogitAdjustments& edits, int64_t S) {
  constexpr auto edit_size = static_cast<int64_t>(sizeof(LogitAdjustment)),
                 row_size = static_cast<int64_t>(sizeof(RowPenalties));
  check_shape(op, "rows", edits.rows, {S * row_size}, DType::u8);
  const int64_t E = edits.edits.size() / std::max<int64_t>(S * edit_size, 1);
  check_shape(op, "edits", edits.edits, {S * E * edit_size}, DType::u8);
  HONE_CHECK(reinterpret_cast<uintptr_t>(edits.rows.data) % alignof(RowPenalties) == 0, op.name(),
             ": rows must be aligned to ", alignof(RowPenalties), " bytes");
  return E;
}

namespace {

// A row's adjustments and its penalties.
struct AdjustmentRow {
  std::span<LogitAdjustment> edits;
  RowPenalties& how;
};

template <class Visit>
void for_each_row(const OpBase& op, const LogitAdjustments& edits, int64_t S, Visit visit) {
  const int64_t E = check_edits(op, edits, S);
  auto* const all = static_cast<LogitAdjustment*>(edits.edits.data);
  auto* const rows = static_cast<RowPenalties*>(edits.rows.data);
  for (int64_t r = 0; r < S; ++r) visit(r, AdjustmentRow{std::span(all + r * E, static_cast<size_t>(E)), rows[r]});
}

template <class Visit>
void for_each_edit(const OpBase& op, const Tensor& logits, const LogitAdjustments& edits, Visit visit) {
  const int64_t S = logits.dim(0), V = logits.dim(1);
  check_shape(op, "logits", logits, {S, V});
  for_each_row(op, edits, S, [&](int64_t r, const AdjustmentRow& row) {
    HONE_CHECK(row.how.repetition_penalty > 0, op.name(), ": row ", r, " has repetition_penalty ",
               row.how.repetition_penalty, "; it must be above 0");
    for (LogitAdjustment& edit : row.edits) {
      if (edit.id < 0) break;
      HONE_CHECK(edit.id < V, op.name(), ": row ", r, " adjusts id ", edit.id, "; the vocabulary has ", V, " tokens");
      visit(logits.row<float>(r)[edit.id], edit, row.how);
    }
  });
}

void apply(Context&, Tensor logits, LogitAdjustments edits) {
  for_each_edit(
      apply_logit_processors, logits, edits, [](float& logit, LogitAdjustment& edit, const RowPenalties& how) {
        edit.was = logit;
        const float bias = edit.stops != 0 && how.stops_after > 0 ? -std::numeric_limits<float>::infinity() : edit.bias;
        if (bias == 0 && edit.times < 0) return;  // adding 0 would turn -0 into 0
        const float z = logit + bias;
        const float penalized = z > 0 ? z / how.repetition_penalty : z * how.repetition_penalty;
        const double minus = edit.times > 0 ? how.frequency_penalty * edit.times + how.presence_penalty : 0;
        logit = edit.times < 0 ? z : penalized - static_cast<float>(minus);
      });
}

void restore(Context&, Tensor logits, LogitAdjustments edits) {
  for_each_edit(restore_logits, logits, edits,
                [](float& logit, const LogitAdjustment& edit, const RowPenalties&) { logit = edit.was; });
}

void count(Context&, LogitAdjustments edits, Tensor ids) {
  const int64_t S = ids.dim(0);
  check_shape(count_sampled_tokens, "ids", ids, {S}, DType::i32);
  for_each_row(count_sampled_tokens, edits, S, [&](int64_t r, AdjustmentRow row) {
    row.how.stops_after = std::max(row.how.stops_after - 1, 0);
    const int32_t id = ids.ptr<int32_t>()[r];
    if (row.how.counts == 0 || id < 0) return;
    const auto place = std::find_if(row.edits.begin(), row.edits.end(),
                                    [id](const LogitAdjustment& edit) { return edit.id == id || edit.id < 0; });
    HONE_CHECK(place != row.edits.end(), "count_sampled_tokens: row ", r, " needs one more adjustment than its ",
               row.edits.size());
    place->id = id;
    place->times = std::max(place->times, 0) + 1;
  });
}

[[maybe_unused]] const bool added[] = {apply_logit_processors.add({"specification", DeviceKind::cpu, apply}),
                                       restore_logits.add({"specification", DeviceKind::cpu, restore}),
                                       count_sampled_tokens.add({"specification", DeviceKind::cpu, count})};

}  // namespace
}  // namespace hone
