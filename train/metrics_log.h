#pragma once
// MetricsLog: writes metrics.jsonl, TensorBoard files and samples.jsonl of a run. Its state is the lengths of the JSON
// Lines files: resuming cuts what was written after the checkpoint.
#include <filesystem>
#include <memory>

#include "core/io/checkpoint.h"
#include "core/io/jsonl.h"
#include "core/io/metrics.h"

namespace hone {

class MetricsLog : public Stateful {
 public:
  explicit MetricsLog(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void metrics(int64_t step, const Metrics& row);
  void sample(const Json& row);
  void save_state(StateSection& section) const override;  // flushes
  void load_state(const StateSection& section) override;  // cuts

 private:
  void open(int64_t step);
  std::filesystem::path folder_;
  std::unique_ptr<MetricsSink> metrics_, tensorboard_;
  std::unique_ptr<JsonlWriter> samples_;
};

}  // namespace hone
