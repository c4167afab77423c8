#pragma once
#include <filesystem>
#include <string>

namespace hone {

// For messages about a path that does not exist: "; did you mean 'train.jsonl'?" with the nearest name in the first
// folder of the path that lacks the next name; "" if none is near.
std::string nearest_path(const std::filesystem::path& path);

}  // namespace hone
