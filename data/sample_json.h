#pragma once
#include <filesystem>
#include <span>

#include "data/sample.h"

namespace hone {

// Samples as JSON Lines, every column that is there, for someone to look at what broke a step.
void write_samples(const std::filesystem::path& path, std::span<const Sample* const> samples);

}  // namespace hone
