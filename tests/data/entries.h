#pragma once
// A sample's column as a vector, to compare it with what a test expects.
#include <vector>

#include "data/sample.h"

namespace hone::test {

inline std::vector<float> entries(const Sample& sample, Column column) {
  const std::span<const float> values = sample.columns.find(column);
  return {values.begin(), values.end()};
}

}  // namespace hone::test
