#pragma once
// config.json as a family reads it. Each read checks kind and range, and is written, default or not, into resolved():
// what save_model writes, so that another program never fills in a default of its own.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "kernels/rope/rope.h"

namespace hone {

class ConfigReader {
 public:
  // Reads members of `config`; `source` is the file in messages.
  ConfigReader(const Json& config, std::string_view source);

  // A member; null counts as absent, an absent one without fallback is an Error. Counts are 1 to `most`.
  int64_t count(const char* key, std::optional<int64_t> fallback = std::nullopt, int64_t most = int64_t{1} << 24);
  double positive(const char* key, std::optional<double> fallback = std::nullopt);
  bool flag(const char* key, bool fallback);
  std::string text(const char* key, const char* fallback);
  const Json* find(std::string_view key) const;  // nullptr when absent or null
  bool has(std::string_view key) const { return resolved_.find(key); }
  void set(const char* key, Json value) { resolved_.set(key, std::move(value)); }

  // An Error unless the text (the flag) is one of those that this family does.
  void accept(const char* key, const char* fallback, std::initializer_list<std::string_view> known);
  void accept(const char* key, bool only);
  // An Error that names the file unless the fact holds.
  template <class... Words>
  void require(bool fact, const Words&... words) const {
    HONE_CHECK(fact, source_, ": ", words...);
  }

  const Json& resolved() const { return resolved_; }

 private:
  std::string source_;
  Json resolved_;
};

// The most layers that a config.json may ask for: each is made before its tensors are compared with the file's.
constexpr int64_t max_layers = 4096;

// rope_theta and rope_scaling (transformers 4) or rope_parameters (5), for heads of `dim`; both are resolved.
RopeConfig read_rope(ConfigReader& config, int64_t dim, int64_t max_positions);

// For each layer how many tokens a query sees, itself included (0 = all): sliding_window where layer_types says
// "sliding_attention" or, without layer_types, in the layers from `first_sliding` on.
std::vector<int64_t> read_windows(ConfigReader& config, int64_t num_blocks, int64_t first_sliding);

}  // namespace hone
