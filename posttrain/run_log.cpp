#include <fstream>
#include <limits>

#include "core/file.h"
#include "core/json.h"
#include "posttrain/run.h"

namespace hone {

struct RunLog::SampleFile {
  std::ofstream out;
};

RunLog::RunLog(std::filesystem::path folder) : folder_(std::move(folder)) {}
RunLog::~RunLog() = default;

// The files are opened when first written, after a checkpoint has had its say about their length.
void RunLog::open(int64_t step) {
  if (metrics_) return;
  constexpr int64_t keep_all = std::numeric_limits<int64_t>::max();
  metrics_ = make_jsonl_sink(folder_ / "metrics.jsonl", keep_all);
  tensorboard_ = make_tensorboard_sink(folder_ / "tensorboard", step);
}

void RunLog::metrics(int64_t step, const Metrics& row) {
  open(step);
  metrics_->write(step, row);
  tensorboard_->write(step, row);
}

void RunLog::sample(const Json& row) {
  if (!samples_) samples_ = std::make_unique<SampleFile>(SampleFile{std::ofstream(folder_ / "samples.jsonl", std::ios::app | std::ios::binary)});
  samples_->out << row.dump() << '\n';
  HONE_CHECK(samples_->out.good(), (folder_ / "samples.jsonl").string(), ": cannot be written (is the disk full?)");
}

static int64_t length_of(const std::filesystem::path& path) {
  std::error_code missing;
  const auto size = std::filesystem::file_size(path, missing);
  return missing ? 0 : static_cast<int64_t>(size);
}

static void cut(const std::filesystem::path& path, int64_t length) {
  if (length_of(path) > length) std::filesystem::resize_file(path, static_cast<uintmax_t>(length));
}

void RunLog::save_state(StateSection& section) const {
  if (metrics_) metrics_->flush(), tensorboard_->flush();
  if (samples_) samples_->out.flush();
  section.values.set("metrics_bytes", length_of(folder_ / "metrics.jsonl"));
  section.values.set("samples_bytes", length_of(folder_ / "samples.jsonl"));
}

void RunLog::load_state(const StateSection& section) {
  metrics_.reset(), tensorboard_.reset(), samples_.reset();
  cut(folder_ / "metrics.jsonl", section.values.at("metrics_bytes", "log").as_int("log.metrics_bytes"));
  cut(folder_ / "samples.jsonl", section.values.at("samples_bytes", "log").as_int("log.samples_bytes"));
}

}  // namespace hone
