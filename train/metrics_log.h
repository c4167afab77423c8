#pragma once
// MetricsLog: writes metrics.jsonl, TensorBoard files and samples.jsonl of a run. Its state is the lengths of the JSON
// Lines files: resuming cuts what was written after the checkpoint. Rank 0 alone has a log that writes.
#include <filesystem>
#include <functional>
#include <memory>

#include "core/io/checkpoint.h"
#include "core/io/jsonl.h"
#include "core/io/metrics.h"

namespace hone {

class MetricsLog : public Stateful {
 public:
  // Writes nothing and has no state: the log of ranks other than 0.
  MetricsLog() = default;
  explicit MetricsLog(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // Called after each row of metrics.jsonl with the length of the file before the row.
  void on_row(std::function<void(int64_t begin)> action) { on_row_ = std::move(action); }
  void metrics(int64_t step, const Metrics& row);
  void sample(const Json& row);
  void save_state(StateSection& section) const override;  // flushes
  void load_state(const StateSection& section) override;  // cuts

 private:
  void open(int64_t step);
  std::filesystem::path folder_;
  std::unique_ptr<MetricsSink> metrics_, tensorboard_;
  std::unique_ptr<JsonlWriter> samples_;
  std::function<void(int64_t begin)> on_row_;
};

}  // namespace hone
