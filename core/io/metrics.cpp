#include "core/io/metrics.h"

#include <cmath>

#include "core/io/file.h"

namespace hone {
namespace {

class JsonlSink : public MetricsSink {
 public:
  explicit JsonlSink(const std::filesystem::path& path) : writer_(path, FileWriter::Mode::append) {}
  void write(int64_t step, const Metrics& metrics) override {
    JsonObject row{{"step", step}};
    for (const auto& [name, value] : metrics) row.emplace_back(name, value);
    writer_.write(Json(std::move(row)).dump() + "\n");
    writer_.flush();
  }
  void flush() override { writer_.sync(); }

 private:
  FileWriter writer_;
};

// The rows of a metrics file before first_step, for a resumed run.
std::string rows_before(const std::filesystem::path& path, std::string_view text, int64_t first_step) {
  std::string kept;
  int64_t line = 0;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    if (newline == std::string_view::npos) break;  // a kill cut the last line short
    const std::string source = path.string();
    const Json row = parse_json(text.substr(0, newline), source, ++line);
    if (row.at("step", source).as_int("step") < first_step) kept += text.substr(0, newline + 1);
    text.remove_prefix(newline + 1);
  }
  return kept;
}

}  // namespace

std::unique_ptr<MetricsSink> make_jsonl_sink(const std::filesystem::path& path, int64_t first_step) {
  if (std::filesystem::exists(path)) {
    const std::string text = read_file(path, max_document_bytes);
    const std::string kept = rows_before(path, text, first_step);
    if (kept.size() != text.size()) write_file_atomic(path, kept);
  }
  return std::make_unique<JsonlSink>(path);
}

Json metrics_json(const Metrics& metrics) {
  Json out = JsonObject{};
  for (const auto& [name, value] : metrics)
    if (std::isfinite(value)) out.set(name, value);
  return out;
}

Metrics metrics_of(const Json& json) {
  Metrics out;
  for (const auto& [name, value] : json.as_object("metrics")) out[name] = value.as_double(name);
  return out;
}

}  // namespace hone
