#include "train/staging.h"

#include <utility>

namespace hone {

void MicroBatchData::append(std::vector<float>& column, const std::vector<float>& part, const char* name,
                            const Sample& sample, bool first) {
  HONE_CHECK(part.empty() || part.size() == sample.tokens.size(), "trainer: a sample of ", sample.tokens.size(),
             " tokens has ", part.size(), " entries of ", name);
  HONE_CHECK(first || sample.tokens.empty() || column.empty() == part.empty(), "trainer: some samples have ", name,
             ", others do not");
  column.insert(column.end(), part.begin(), part.end());
}

void MicroBatchData::fill(std::span<const Sample* const> samples) {
  const std::pair<std::vector<float>*, std::pair<const char*, std::vector<float> Sample::*>> columns[] = {
      {&mask_, {"mask", &Sample::mask}},
      {&old_logp_, {"old_logp", &Sample::old_logp}},
      {&behavior_logp_, {"behavior_logp", &Sample::behavior_logp}},
      {&reference_logp_, {"reference_logp", &Sample::reference_logp}},
      {&advantage_, {"advantage", &Sample::advantage}},
      {&old_value_, {"value", &Sample::value}},
      {&returns_, {"returns", &Sample::returns}}};
  parts_.clear(), rows_.clear(), targets_.clear();
  offsets_.assign(1, 0);
  for (const auto& [column, source] : columns) column->clear();
  for (const Sample* sample : samples) {
    const int32_t begin = offsets_.back();
    for (const auto& [column, source] : columns)
      append(*column, sample->*source.second, source.first, *sample, begin == 0);
    parts_.push_back({.tokens = sample->tokens});
    for (size_t t = 1; t < sample->tokens.size(); ++t) {
      if (sample->mask[t] == 0) continue;
      rows_.push_back(begin + static_cast<int32_t>(t) - 1);
      targets_.push_back(sample->tokens[t]);
    }
    offsets_.push_back(begin + static_cast<int32_t>(sample->tokens.size()));
  }
  logp.assign(mask_.size(), 0);
  entropy.clear(), value.clear();
}

void MicroBatchData::to_tokens(std::span<const float> rows, std::vector<float>& tokens) const {
  tokens.assign(mask_.size(), 0);
  for (size_t r = 0; r < rows_.size(); ++r) tokens[static_cast<size_t>(rows_[r]) + 1] = rows[r];
}

void MicroBatchData::to_rows(std::span<const float> tokens, std::vector<float>& rows) const {
  rows.resize(rows_.size());
  for (size_t r = 0; r < rows_.size(); ++r) rows[r] = tokens[static_cast<size_t>(rows_[r]) + 1];
}

TokenBatch MicroBatchData::batch(double scale) const {
  return {.offsets = offsets_,
          .logp = logp,
          .old_logp = old_logp_,
          .behavior_logp = behavior_logp_,
          .reference_logp = reference_logp_,
          .advantage = advantage_,
          .mask = mask_,
          .entropy = entropy,
          .value = value,
          .old_value = old_value_,
          .returns = returns_,
          .scale = scale};
}

TokenGrad MicroBatchData::zeroed_grad() {
  grad_logp.assign(logp.size(), 0), grad_entropy.assign(entropy.size(), 0), grad_value.assign(value.size(), 0);
  return {.logp = grad_logp, .entropy = grad_entropy, .value = grad_value};
}

}  // namespace hone
