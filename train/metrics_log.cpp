#include "train/metrics_log.h"

#include <limits>

namespace hone {

static int64_t length_of(const std::filesystem::path& path) {
  std::error_code missing;
  const auto size = std::filesystem::file_size(path, missing);
  return missing ? 0 : static_cast<int64_t>(size);
}

// Opens the files at the first write, since load_state() may cut them before.
void MetricsLog::open(int64_t step) {
  if (metrics_) return;
  constexpr int64_t keep_all = std::numeric_limits<int64_t>::max();
  metrics_ = make_jsonl_sink(folder_ / "metrics.jsonl", keep_all);
  tensorboard_ = make_tensorboard_sink(folder_ / "tensorboard", step);
}

void MetricsLog::metrics(int64_t step, const Metrics& row) {
  if (folder_.empty()) return;
  open(step);
  const int64_t begin = on_row_ ? length_of(folder_ / "metrics.jsonl") : 0;
  metrics_->write(step, row);
  tensorboard_->write(step, row);
  if (samples_) samples_->flush();  // both can be read during the run
  if (on_row_) on_row_(begin);
}

void MetricsLog::sample(const Json& row) {
  if (folder_.empty()) return;
  if (!samples_) samples_ = std::make_unique<JsonlWriter>(folder_ / "samples.jsonl", FileWriter::Mode::append);
  samples_->write(row);
}

// Cuts a log to the length section[member].
static void cut(const std::filesystem::path& path, const StateSection& section, const char* member) {
  const int64_t length = section.values.at(member, "log").as_int(member), found = length_of(path);
  HONE_CHECK(length >= 0 && length <= found, path.string(), ": has ", found,
             " bytes, the checkpoint was saved when it had ", length);
  if (found > length) std::filesystem::resize_file(path, static_cast<uintmax_t>(length));
}

void MetricsLog::save_state(StateSection& section) const {
  if (folder_.empty()) return;
  if (metrics_) {
    metrics_->flush();
    tensorboard_->flush();
  }
  if (samples_) samples_->flush();
  section.values.set("metrics_bytes", length_of(folder_ / "metrics.jsonl"));
  section.values.set("samples_bytes", length_of(folder_ / "samples.jsonl"));
}

void MetricsLog::load_state(const StateSection& section) {
  if (folder_.empty()) return;
  metrics_.reset();
  tensorboard_.reset();
  samples_.reset();
  cut(folder_ / "metrics.jsonl", section, "metrics_bytes");
  cut(folder_ / "samples.jsonl", section, "samples_bytes");
}

}  // namespace hone
