#include "data/sample_json.h"

#include "core/io/file.h"

namespace hone {

Json column_json(Column column, std::span<const float> values) {
  const auto width = static_cast<size_t>(column.info().width);
  if (width == 1) return Json::array(values);
  JsonArray out;
  for (size_t i = 0; i + width <= values.size(); i += width) out.push_back(Json::array(values.subspan(i, width)));
  return out;
}

void write_samples(const std::filesystem::path& path, std::span<const Sample* const> samples) {
  std::string lines;
  for (const Sample* sample : samples) {
    Json row = JsonObject{};
    row.set("tokens", Json::array(std::vector<int64_t>(sample->tokens.begin(), sample->tokens.end())));
    sample->columns.for_each([&](Column column, std::span<const float> values) {
      const Json entries = column_json(column, values);
      row.set(column.name(), column.info().per_sequence ? entries.as_array().front() : entries);
    });
    row.set("reward", sample->reward);
    row.set("text", sample->completion.text);
    row.set("weight_version", sample->weight_version);
    if (!sample->versions.empty()) row.set("versions", Json::array(sample->versions));
    lines += row.dump() + "\n";
  }
  write_file_atomic(path, lines);
}

}  // namespace hone
