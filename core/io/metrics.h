#pragma once
// Metrics of a run: a name and a number at a step, written to metrics.jsonl (one object a step: {"step": n, "name":
// value, ...}) and to TensorBoard event files. Names are TRL's where TRL has one.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "core/io/json.h"

namespace hone {

// Sorted by name, so that a row prints the same whichever order the values came in.
using Metrics = std::map<std::string, double>;

// A JSON object. NaN and infinities, which JSON does not have, are left out.
Json metrics_json(const Metrics& metrics);
Metrics metrics_of(const Json& json);

class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void write(int64_t step, const Metrics& metrics) = 0;
  // Writes buffered rows to disk. Called before each checkpoint is renamed to its final name.
  virtual void flush() = 0;
};

// Appends to `path`. Opening cuts an incomplete last line and the rows of `first_step` and later: a resumed run writes
// them again.
std::unique_ptr<MetricsSink> make_jsonl_sink(const std::filesystem::path& path, int64_t first_step);
// A TensorBoard event file in `folder` (TFRecord framing, masked CRC32C). A SessionLog START event supersedes rows of
// first_step and later.
std::unique_ptr<MetricsSink> make_tensorboard_sink(const std::filesystem::path& folder, int64_t first_step);

}  // namespace hone
