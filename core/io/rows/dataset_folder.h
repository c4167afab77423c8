#pragma once
// Dataset folders as the Hugging Face hub has them: shards of Parquet, JSON or CSV, and which split each belongs to. As
// in `datasets`, the README's `configs` decides; without it, names of files and folders do
// (data/train-00000-of-00002.parquet, test.jsonl, validation/part.csv); without those, all files are "train".
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// The files of a split, in order. config: the name of a configuration in the README; empty = "default", or the only
// one. "dev", "val", "valid" and "validation" are one split, as are "train" and "training", "test" and "eval". Throws
// an Error that lists the splits if there is none of that name, and one that names a missing shard.
std::vector<std::string> dataset_files(const std::filesystem::path& folder, std::string_view config,
                                       std::string_view split);

// A split of a README's configuration and its files as patterns (*, ?, **).
struct DatasetFiles {
  std::string config, split;  // split "": the names of the files say it
  std::vector<std::string> patterns;
  bool is_default = false;  // the configuration is marked so
  int64_t line = 0;         // in the README
};
// Reads `configs` from the YAML at the beginning of a README. Empty if there is none. What cannot be read is an Error
// with `name`:LINE.
std::vector<DatasetFiles> readme_configs(std::string_view readme, std::string_view name = "README.md");

}  // namespace hone
