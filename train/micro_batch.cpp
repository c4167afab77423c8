#include "train/micro_batch.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace hone {

void MicroBatchData::fill(std::span<const Sample* const> samples) {
  parts_.clear();
  rows_.clear();
  targets_.clear();
  offsets_.assign(1, 0);
  join_columns(samples, columns_);
  for (const Sample* sample : samples) {
    const int32_t begin = offsets_.back();
    const std::span<const float> mask =
        sample->tokens.empty() ? std::span<const float>() : std::as_const(sample->columns)[columns::mask];
    parts_.push_back({.tokens = sample->tokens});
    for (size_t t = 1; t < sample->tokens.size(); ++t) {
      if (mask[t] == 0) continue;
      rows_.push_back(begin + static_cast<int32_t>(t) - 1);
      targets_.push_back(sample->tokens[t]);
    }
    offsets_.push_back(begin + static_cast<int32_t>(sample->tokens.size()));
  }
  logp.assign(static_cast<size_t>(offsets_.back()), 0);
  entropy.clear();
  value.clear();
}

void MicroBatchData::to_tokens(std::span<const float> rows, std::vector<float>& tokens) const {
  tokens.assign(logp.size(), 0);
  for (size_t r = 0; r < rows_.size(); ++r) tokens[static_cast<size_t>(rows_[r]) + 1] = rows[r];
}

void MicroBatchData::to_rows(std::span<const float> tokens, std::vector<float>& rows) const {
  rows.resize(rows_.size());
  for (size_t r = 0; r < rows_.size(); ++r) rows[r] = tokens[static_cast<size_t>(rows_[r]) + 1];
}

TokenBatch MicroBatchData::batch(double scale) const {
  TokenBatch out{.offsets = offsets_, .scale = scale};
  columns_.for_each([&](Column column, std::span<const float> values) { out.columns.set(column, values); });
  out.columns.set(columns::logp, logp);
  out.columns.set(columns::entropy, entropy);
  out.columns.set(columns::value, value);
  return out;
}

TokenGrad MicroBatchData::zeroed_grad() {
  grad_logp.assign(logp.size(), 0);
  grad_entropy.assign(entropy.size(), 0);
  grad_value.assign(value.size(), 0);
  return {.logp = grad_logp, .entropy = grad_entropy, .value = grad_value};
}

void make_micro_batches(std::span<const Sample* const> samples, size_t unit, int64_t max_tokens,
                        std::vector<MicroBatch>& out) {
  HONE_CHECK(samples.size() % unit == 0, "trainer: ", samples.size(), " samples do not make pairs");
  out.clear();
  int64_t tokens = 0;
  for (size_t i = 0; i < samples.size(); i += unit) {
    int64_t next = 0;
    for (size_t j = i; j < i + unit; ++j) next += static_cast<int64_t>(samples[j]->tokens.size());
    if (out.empty() || tokens + next > max_tokens) out.push_back({i, i}), tokens = 0;
    out.back().end = i + unit;
    tokens += next;
  }
}

}  // namespace hone
