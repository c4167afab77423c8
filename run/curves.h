#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/svg.h"

namespace hone {

// A metric of runs (folders with metrics.jsonl) by step: the runs' mean at each step that all have, and the band from
// the least to the largest where there are several. Each run's values are first averaged over `smooth` rows up to each.
// An Error where a run does not have the metric.
Curve read_curve(const std::string& name, const std::vector<std::filesystem::path>& runs, const std::string& metric,
                 int64_t smooth);

bool has_metric(const std::filesystem::path& run, const std::string& metric);

}  // namespace hone
