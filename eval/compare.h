#pragma once
// Compares two evaluations of the same rows with paired tests.
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "eval/statistics.h"

namespace hone {

struct MetricComparison {
  std::string task, metric;  // a perplexity is compared by its logarithm: "log perplexity"
  int64_t num_problems = 0;
  PairedDifference paired;
  bool binary = false;  // every value is 0 or 1; McNemar's test is then computed as well
  int64_t only_first = 0, only_second = 0;
  double mcnemar_p = 1;
  Json to_json() const;
};

// first, second: sample files, or folders that `hone eval --out` wrote, with the same tasks. Compares the metrics that
// both have. In each subtask both must have the same rows (by hash), each as often; otherwise throws an Error that
// names the first sample without a match.
std::vector<MetricComparison> compare_evaluations(const std::filesystem::path& first,
                                                  const std::filesystem::path& second, int64_t iterations,
                                                  int64_t seed);
// A table for a terminal.
std::string comparison_table(const std::vector<MetricComparison>& comparisons);

}  // namespace hone
