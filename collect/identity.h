#pragma once
// What a collection's completions depend on besides the rows: settings and model. A resumed collection must have the
// same, or its rows would be of two kinds.
#include <filesystem>
#include <optional>
#include <string>

#include "collect/config.h"
#include "core/config/config.h"

namespace hone {

// A digest of a model folder or file: names and sizes of its files, small files whole, and evenly spaced blocks of
// large ones. It reads at most 1 MB of a file, and training changes every block of the weights.
std::string model_digest(const std::filesystem::path& model);

// Settings that decide completions and rewards, as JSON with the keys of the recipe. document: for ${NAME} as written.
// model: what samples, an object.
Json collect_identity(const CollectConfig& config, const Config& document, const Json& model);

// The first key in which `now` differs from `before`, as "sampling.temperature is 1, it was 0.7". Nothing if they are
// equal.
std::optional<std::string> first_difference(const Json& before, const Json& now, const std::string& key = "");

}  // namespace hone
