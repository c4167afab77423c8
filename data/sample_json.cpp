#include "data/sample_json.h"

#include "core/io/file.h"
#include "core/io/json.h"

namespace hone {

void write_samples(const std::filesystem::path& path, std::span<const Sample* const> samples) {
  std::string lines;
  for (const Sample* sample : samples) {
    Json row = JsonObject{};
    const auto column = [&](const char* name, const std::vector<float>& values) {
      if (!values.empty()) row.set(name, Json::array(values));
    };
    row.set("tokens", Json::array(std::vector<int64_t>(sample->tokens.begin(), sample->tokens.end())));
    column("mask", sample->mask);
    column("behavior_logp", sample->behavior_logp);
    column("old_logp", sample->old_logp);
    column("reference_logp", sample->reference_logp);
    column("advantage", sample->advantage);
    column("value", sample->value);
    column("returns", sample->returns);
    row.set("reward", sample->reward);
    row.set("text", sample->completion.text);
    row.set("weight_version", sample->weight_version);
    if (!sample->versions.empty()) row.set("versions", Json::array(sample->versions));
    lines += row.dump() + "\n";
  }
  write_file_atomic(path, lines);
}

}  // namespace hone
