#include "collect/identity.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "core/io/file.h"
#include "core/net/digest.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBlockBytes = 4096, kMaxBlocks = 256;

std::vector<fs::path> files_of(const fs::path& model) {
  if (!fs::is_directory(model)) return {model};
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(model))
    if (entry.is_regular_file()) out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

// The whole of a small file, evenly spaced blocks of a large one with the first and the last.
std::string blocks_of(const fs::path& file, uint64_t size) {
  if (size <= kBlockBytes * kMaxBlocks) return read_file(file, kBlockBytes * kMaxBlocks * 64);
  std::ifstream in(file, std::ios::binary);
  std::string out;
  std::string block(kBlockBytes, '\0');
  for (uint64_t i = 0; i < kMaxBlocks; ++i) {
    const uint64_t offset = (size - kBlockBytes) / (kMaxBlocks - 1) * i;
    in.seekg(static_cast<std::streamoff>(i + 1 == kMaxBlocks ? size - kBlockBytes : offset));
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    HONE_CHECK(in.good(), file.string(), ": cannot read: the file became shorter");
    out += block;
  }
  return out;
}

// Keys that change the time or the number of retries, not the result.
bool is_free(std::string_view key) {
  constexpr std::string_view free[] = {"max_reward_failure_rate", "environment.max_concurrent",
                                       "environment.max_environment_failure_rate"};
  return std::ranges::find(free, key) != std::end(free);
}

std::string shown(const Json* value) {
  constexpr size_t most = 120;
  const std::string text = value ? value->dump() : "absent";
  return text.size() > most ? text.substr(0, most) + "..." : text;
}

}  // namespace

std::string model_digest(const fs::path& model) {
  HONE_CHECK(fs::exists(model), model.string(), ": there is no such model");
  std::string all;
  for (const fs::path& file : files_of(model)) {
    const uint64_t size = fs::file_size(file);
    all += concat(file.filename().string(), ":", size, ":");
    all += base64(sha256(blocks_of(file, size)));
  }
  return base64(sha256(all));
}

Json collect_identity(const CollectConfig& config, const Config& document, const Json& model) {
  CollectorConfig actor = config.actor;
  Json out = to_json([&](Fields& f) { actor.fields(f); }, &document);
  out.set("rollout", Json(JsonObject{{"quantization", config.rollout.quantization},
                                     {"kv_cache_dtype", config.rollout.kv_cache_dtype}}));
  out.set("model", model);
  return out;
}

std::optional<std::string> first_difference(const Json& before, const Json& now, const std::string& key) {
  if (before == now || is_free(key)) return std::nullopt;
  if (!before.is_object() || !now.is_object()) return concat(key, " is ", shown(&now), ", it was ", shown(&before));
  const std::string prefix = key.empty() ? "" : key + ".";
  for (const auto& [name, value] : now.as_object()) {
    const Json* old = before.find(name);
    if (!old && !is_free(prefix + name)) return concat(prefix, name, " is ", shown(&value), ", it was absent");
    if (!old) continue;
    if (auto found = first_difference(*old, value, prefix + name)) return found;
  }
  for (const auto& [name, value] : before.as_object())
    if (!now.find(name) && !is_free(prefix + name)) return concat(prefix, name, " is absent, it was ", shown(&value));
  return std::nullopt;
}

}  // namespace hone
