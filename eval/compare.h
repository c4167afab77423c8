#pragma once
// Two evaluations of the same rows, compared pair by pair.
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
  bool yes_or_no = false;  // every value is 0 or 1: then McNemar's test is there too
  int64_t only_first = 0, only_second = 0;
  double mcnemar_p = 1;
  Json to_json() const;
};

// first, second: files of samples, or folders that `hone eval --out` wrote, whose tasks must be the same. Metrics that
// both have are compared. An Error names the first sample that does not match: same rows (by their hash), as often, in
// each subtask.
std::vector<MetricComparison> compare_evaluations(const std::filesystem::path& first,
                                                  const std::filesystem::path& second, int64_t iterations,
                                                  int64_t seed);
// For a terminal.
std::string comparison_table(const std::vector<MetricComparison>& comparisons);

}  // namespace hone
