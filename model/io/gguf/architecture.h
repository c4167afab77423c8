#pragma once
// What hone knows of a GGUF architecture ("llama", "qwen2", ...): names of tensors, config.json from the metadata, and
// back. A family adds its own with one line, in a file model/io/gguf/ARCHITECTURE.cpp.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/registry.h"
#include "core/io/gguf/gguf.h"

namespace hone {

class GgufWriter;
struct GgufArchitecture;

// Reads the keys of one architecture, "ARCHITECTURE.key", and checks them as config.json's reader does.
class GgufKeys {
 public:
  GgufKeys(const GgufReader& file, std::string architecture) : file_(file), architecture_(std::move(architecture)) {}
  const GgufReader& file() const { return file_; }
  bool has(std::string_view key) const { return file_.find(full(key)) != nullptr; }
  // A count of 1 or more; a list of equal counts (one a layer) counts as one. Without fallback the key must be there.
  int64_t count(std::string_view key) const;
  int64_t count(std::string_view key, int64_t fallback) const { return has(key) ? count(key) : fallback; }
  double number(std::string_view key, double fallback) const { return file_.number(full(key), fallback); }
  std::string text(std::string_view key, std::string_view fallback) const { return file_.text(full(key), fallback); }
  bool flag(std::string_view key, bool fallback) const { return file_.flag(full(key), fallback); }
  template <class... Words>
  void require(bool fact, const Words&... words) const {
    HONE_CHECK(fact, file_.source(), ": ", words...);
  }
  std::string full(std::string_view key) const { return concat(architecture_, ".", key); }

 private:
  const GgufReader& file_;
  std::string architecture_;
};

// How the two sides name a tensor: without .weight or .bias, which are the same. "*" is the layer's number. "#" in
// hugging_face is that of an expert: the tensor of the GGUF file has those of all experts, [experts, ...].
struct GgufTensorName {
  std::string_view gguf, hugging_face;
  bool complete = false;  // the names have their endings, which differ
  bool one_row = false;   // [columns] in GGUF, [1, columns] as Hugging Face has it
  bool keep_f32 = false;  // f32 whatever the model's dtype (Param::keep_f32)
};
// What a name becomes on the other side.
struct GgufTranslation {
  std::string name;  // of Hugging Face: "#" stands for the expert's number
  const GgufTensorName* entry = nullptr;
  int64_t expert = -1;  // of Hugging Face's tensor
};

struct GgufArchitecture {
  std::vector<std::string> model_types;  // families that are written as this architecture
  std::vector<GgufTensorName> names;
  bool interleaved_rope = false;   // rows of q and k lie in pairs (2i, 2i + 1) where Hugging Face has halves
  bool transposed = false;         // matrices of layers are stored as Hugging Face's Conv1D, transposed
  bool adds_one_to_norms = false;  // norms have their weights plus 1 (Gemma)
  bool always_has_head = false;    // llama.cpp wants output.weight even if it is the embedding
  bool latent_attention = false;   // kv_b_proj is attn_k_b and attn_v_b (model/io/gguf/latent.h)
  // config.json without ids of tokens. tied: the file has no lm_head of its own.
  Json (*config)(const GgufKeys& keys, bool tied);
  // Writes the keys of config.json's settings.
  void (*write_keys)(const Json& config, GgufWriter& out);
};

Registry<GgufArchitecture>& gguf_architectures();

// Converts a tensor's name; nullopt if the architecture has no such tensor.
std::optional<GgufTranslation> hugging_face_name(const GgufArchitecture& architecture, std::string_view gguf);
std::optional<GgufTranslation> gguf_name(const GgufArchitecture& architecture, std::string_view hugging_face);

// Whether Hugging Face's name is that of a norm's weight.
inline bool is_norm(std::string_view hugging_face) { return hugging_face.ends_with("norm.weight"); }

constexpr int64_t max_gguf_experts = 4096;

}  // namespace hone
