#pragma once
// The column that tells a loss which source a sequence is from, for metrics by source. Stages with several sources set
// it.
#include <string>

#include "data/columns.h"

namespace hone {

namespace columns {
inline const Column source =
    register_column("source", {.doc = "index of the sequence's source in the stage", .per_sequence = true});
}  // namespace columns

// The name of a metric of one source: "loss/0".
inline std::string source_metric(const char* metric, float source) {
  return concat(metric, "/", static_cast<int64_t>(source));
}

}  // namespace hone
