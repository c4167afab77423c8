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
  // To disk, before a checkpoint is announced.
  virtual void flush() = 0;
};

// Appends to path. On opening, rows with a step of `first_step` or later are cut (a resumed run writes them again), a
// torn last line too.
std::unique_ptr<MetricsSink> make_jsonl_sink(const std::filesystem::path& path, int64_t first_step);
// A TensorBoard event file in folder (TFRecord framing, masked CRC32C); rows past first_step are superseded the way
// TensorBoard does it (a SessionLog START event).
std::unique_ptr<MetricsSink> make_tensorboard_sink(const std::filesystem::path& folder, int64_t first_step);

}  // namespace hone
