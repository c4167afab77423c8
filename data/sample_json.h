#pragma once
// Samples as JSON, to find out why a step failed.
#include <filesystem>
#include <span>

#include "core/io/json.h"
#include "data/sample.h"

namespace hone {

// Entries of a column as a list: of numbers, or of lists of numbers if the column is wider than one.
Json column_json(Column column, std::span<const float> values);

// Writes samples as JSON Lines with every column that is there: a list with an entry for each token, or one number for
// the sequence.
void write_samples(const std::filesystem::path& path, std::span<const Sample* const> samples);

}  // namespace hone
