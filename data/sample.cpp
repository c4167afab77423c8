#include "data/sample.h"

#include <algorithm>

namespace hone {

void set_mask(Sample& sample, size_t first) {
  std::vector<float> mask(sample.tokens.size(), 1);
  std::fill_n(mask.begin(), std::min(std::max<size_t>(first, 1), mask.size()), 0.0f);
  sample.columns.set(columns::mask, std::move(mask));
}

void clear_mask(Sample& sample) {
  if (sample.columns.has(columns::mask)) std::ranges::fill(sample.columns[columns::mask], 0.0f);
}

// Appends one column of all samples to out.
static void join_column(Column column, std::span<const Sample* const> samples, Columns& out) {
  size_t have = 0, lack = 0, last_with = 0, last_without = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = *samples[i];
    const std::span<const float> values = sample.columns.find(column);
    if (values.empty() && sample.tokens.empty() && !column.info().per_sequence) continue;
    const bool has = !values.empty();
    (has ? have : lack) += 1;
    (has ? last_with : last_without) = i;
    if (!has) continue;
    HONE_CHECK(values.size() == column.size(1, sample.tokens.size()), "sample ", i, " has ", values.size(),
               " entries of ", column.name(), " for ", sample.tokens.size(), " tokens; ",
               column.size(1, sample.tokens.size()), " belong there");
    out.append(column, values);
  }
  HONE_CHECK(have == 0 || lack == 0, "column ", column.name(), " is missing from ", lack, " of ", have + lack,
             " samples: sample ", last_with, " has it, sample ", last_without, " does not");
}

void join_columns(std::span<const Sample* const> samples, Columns& out) {
  out.clear();
  for (const Column column : all_columns()) join_column(column, samples, out);
}

}  // namespace hone
