#pragma once
// ConfigReader: reads config.json for a family. Each read checks type and range and is recorded, default or not, in
// resolved(). save_model writes resolved(), so another program needs no defaults of its own.
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "kernels/elementwise/activation.h"
#include "kernels/rope/rope.h"

namespace hone {

class ConfigReader {
 public:
  // source: the file's name in messages.
  ConfigReader(const Json& config, std::string_view source);

  // One member. null counts as absent; an absent member without fallback is an Error. A count is in [least, most].
  int64_t count(const char* key, std::optional<int64_t> fallback = std::nullopt, int64_t most = int64_t{1} << 24,
                int64_t least = 1);
  double positive(const char* key, std::optional<double> fallback = std::nullopt);
  // The same, but null means none, which is 0.
  double positive_or_none(const char* key, double fallback);
  bool flag(const char* key, bool fallback);
  std::string text(const char* key, const char* fallback);
  // The same for each layer: the member is one text for all layers, or a list with a text for each.
  std::vector<std::string> text_per_layer(const char* key, const char* fallback, int64_t num_layers);
  const Json* find(std::string_view key) const;  // nullptr when absent or null
  bool has(std::string_view key) const { return resolved_.find(key); }
  void set(const char* key, Json value) { resolved_.set(key, std::move(value)); }

  // Throws Error unless the member has a value that the family supports.
  void accept(const char* key, const char* fallback, std::initializer_list<std::string_view> known);
  void accept(const char* key, bool only);
  // An activation by Hugging Face's name.
  Activation activation(const char* key, const char* fallback) { return activation_of(key, text(key, fallback)); }
  Activation activation_of(const char* key, const std::string& name) const;
  // The file and a member in it, for messages.
  std::string place(std::string_view member) const { return concat(source_, ": ", member); }
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

// What families do differently with RoPE.
struct RopeDefaults {
  double theta = 10000;
  bool partial = false;  // partial_rotary_factor may be below 1
  // Phi-3: original_max_position_embeddings is 4096 if it is absent, and longrope has old names.
  bool phi = false;
  // original_max_position_embeddings beside the scaling wins over that of the scaling. read_rope() sets it.
  bool original_beside = false;
};
// Reads rope_theta and rope_scaling (transformers 4) or rope_parameters (5) for heads of `dim`. Resolves both forms.
RopeConfig read_rope(ConfigReader& config, int64_t dim, int64_t max_positions, const RopeDefaults& defaults = {});
// Reads the object `parameters` of one kind of layers, which config.json has at `where`.
RopeConfig read_rope_object(ConfigReader& config, const Json& parameters, const std::string& where, int64_t dim,
                            int64_t max_positions, const RopeDefaults& defaults);
// Positions that a table of this scaling serves: of longrope those of the original context, unless use_long_rope,
// hone's own member, takes the long factors for all positions.
int64_t rope_positions(const RopeConfig& rope, int64_t max_positions);

// True for each layer that layer_types calls "sliding_attention"; without layer_types, for each that `slides` names.
// If a layer slides, layer_types is then resolved.
std::vector<bool> read_sliding_layers(ConfigReader& config, int64_t num_layers,
                                      const std::function<bool(int64_t layer)>& slides);
// The attention window of each layer: how many tokens a query sees, itself included (0 = all). It is sliding_window if
// the layer slides; without layer_types, the layers from `first_sliding` on slide if there is a sliding_window.
std::vector<int64_t> read_windows(ConfigReader& config, int64_t num_layers, int64_t first_sliding);
std::vector<int64_t> read_windows(ConfigReader& config, const std::vector<bool>& sliding);
// Qwen's use_sliding_window. If it is true, an absent sliding_window becomes transformers' default; null is no window.
bool read_use_sliding_window(ConfigReader& config);

// True for each layer with RoPE: no_rope_layers is 1 there, in spite of its name. Without it, every
// no_rope_layer_interval-th layer has no RoPE; interval: what config.json leaves out, 0 = all layers have RoPE.
std::vector<bool> read_rope_layers(ConfigReader& config, int64_t num_layers, int64_t interval);

}  // namespace hone
