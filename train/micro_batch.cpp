#include "train/micro_batch.h"

#include <algorithm>
#include <functional>
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
    if (out.empty() || tokens + next > max_tokens) {
      out.push_back({i, i});
      tokens = 0;
    }
    out.back().end = i + unit;
    tokens += next;
  }
}

namespace {

// Samples that stay together, with the sums of their sizes.
struct SampleUnit {
  size_t index = 0;
  int64_t tokens = 0, cost = 0;
};

struct Bin {
  std::vector<size_t> units;  // ascending
  int64_t tokens = 0, cost = 0;
};

// Puts the units, which are in the order of falling tokens, into `count` bins; empty: some unit has no room.
std::vector<Bin> fill_bins(std::span<const SampleUnit> units, size_t count, int64_t max_tokens) {
  std::vector<Bin> bins(count);
  for (const SampleUnit& unit : units) {
    Bin* best = nullptr;
    for (Bin& bin : bins)
      if ((bin.units.empty() || bin.tokens + unit.tokens <= max_tokens) && (!best || bin.cost < best->cost))
        best = &bin;
    if (!best) return {};
    best->units.push_back(unit.index);
    best->tokens += unit.tokens;
    best->cost += unit.cost;
  }
  std::erase_if(bins, [](const Bin& bin) { return bin.units.empty(); });
  for (Bin& bin : bins) std::ranges::sort(bin.units);
  std::ranges::sort(bins, {}, [](const Bin& bin) { return bin.units.front(); });
  return bins;
}

}  // namespace

std::vector<MicroBatch> cut_micro_batches(std::vector<const Sample*>& samples, const CutConfig& config) {
  std::vector<MicroBatch> out;
  if (config.multiple <= 1 || samples.empty()) {
    make_micro_batches(samples, config.unit, config.max_tokens, out);
    return out;
  }
  HONE_CHECK(samples.size() % config.unit == 0, "trainer: ", samples.size(), " samples do not make pairs");
  std::vector<SampleUnit> units(samples.size() / config.unit);
  int64_t tokens = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    units[u].index = u;
    for (size_t j = 0; j < config.unit; ++j) {
      const auto length = static_cast<int64_t>(samples[u * config.unit + j]->tokens.size());
      units[u].tokens += length;
      units[u].cost += config.cost(length);
    }
    tokens += std::min(units[u].tokens, config.max_tokens);
  }
  std::ranges::stable_sort(units, std::ranges::greater(), &SampleUnit::tokens);
  // At most `tokens`, so that a large limit does not overflow.
  const int64_t most = std::max<int64_t>(1, std::min(config.max_tokens, tokens));
  const int64_t rounds = std::max<int64_t>(1, (tokens - 1) / (most * config.multiple) + 1);
  std::vector<Bin> bins;
  for (int64_t count = rounds * config.multiple; bins.empty(); count += config.multiple)
    bins = fill_bins(units, static_cast<size_t>(count), config.max_tokens);
  std::vector<const Sample*> permuted;
  for (const Bin& bin : bins) {
    const size_t begin = permuted.size();
    for (const size_t u : bin.units)
      for (size_t j = 0; j < config.unit; ++j) permuted.push_back(samples[u * config.unit + j]);
    out.push_back({begin, permuted.size()});
  }
  samples = std::move(permuted);
  return out;
}

}  // namespace hone
