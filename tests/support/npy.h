#pragma once
// NumPy's .npy files (version 1, C order), for tests against stored arrays.
#include <cstdint>
#include <filesystem>
#include <vector>

namespace hone::test {

// u2 holds bf16 (NumPy has no such type); every number is widened to double.
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<double> values;
};
NpyArray read_npy(const std::filesystem::path& path);

}  // namespace hone::test
