#pragma once
// NumPy's .npy files (version 1, C order), for tests against stored arrays.
#include <cstdint>
#include <filesystem>
#include <vector>

namespace hone::test {

// u2 stores bf16, which NumPy lacks. Every number is widened to double.
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<double> values;
};
NpyArray read_npy(const std::filesystem::path& path);

}  // namespace hone::test
