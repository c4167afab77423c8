#pragma once
// ConfigReader: reads config.json for a family. Each read checks type and range and is recorded, default or not, in
// resolved(). save_model writes resolved(), so another program needs no defaults of its own.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "kernels/rope/rope.h"

namespace hone {

class ConfigReader {
 public:
  // source: the file's name in messages.
  ConfigReader(const Json& config, std::string_view source);

  // One member. null counts as absent; an absent member without fallback is an Error. A count is in [1, most].
  int64_t count(const char* key, std::optional<int64_t> fallback = std::nullopt, int64_t most = int64_t{1} << 24);
  double positive(const char* key, std::optional<double> fallback = std::nullopt);
  bool flag(const char* key, bool fallback);
  std::string text(const char* key, const char* fallback);
  const Json* find(std::string_view key) const;  // nullptr when absent or null
  bool has(std::string_view key) const { return resolved_.find(key); }
  void set(const char* key, Json value) { resolved_.set(key, std::move(value)); }

  // Throws Error unless the member has a value that the family supports.
  void accept(const char* key, const char* fallback, std::initializer_list<std::string_view> known);
  void accept(const char* key, bool only);
  // Throws an Error that names the file unless the fact holds.
  template <class... Words>
  void require(bool fact, const Words&... words) const {
    HONE_CHECK(fact, source_, ": ", words...);
  }

  const Json& resolved() const { return resolved_; }

 private:
  std::string source_;
  Json resolved_;
};

// Limit of a config.json: layers are constructed before their tensors are compared with the file.
constexpr int64_t max_layers = 4096;

// Reads rope_theta and rope_scaling (transformers 4) or rope_parameters (5) for heads of `dim`. Resolves both forms.
RopeConfig read_rope(ConfigReader& config, int64_t dim, int64_t max_positions);

// The attention window of each layer: how many tokens a query sees, itself included (0 = all). It is sliding_window if
// layer_types says "sliding_attention"; without layer_types, in the layers from `first_sliding` on.
std::vector<int64_t> read_windows(ConfigReader& config, int64_t num_blocks, int64_t first_sliding);

}  // namespace hone
