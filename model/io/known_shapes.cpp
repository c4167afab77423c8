#include "model/io/known_shapes.h"

#include <map>

#include "core/base/check.h"
#include "core/base/registry.h"
#include "core/base/suggest.h"

namespace hone {
namespace {

struct Shape {
  const char* family;
  int64_t width, mlp, layers, heads, kv_heads, head_dim, vocabulary;
  double eps;
  int64_t positions;
  bool tied = true;
  double rope_theta = 10000;
  int64_t experts = 0, choices = 0, expert_mlp = 0;  // of a mixture: experts, those of a token, and an expert's width
};

// Embeddings are tied where the published model has them so. Positions may exceed the model's: benchmarks have long
// sequences.
const std::map<std::string, Shape>& shapes() {
  static const std::map<std::string, Shape> all{
      {"llama-124m", {"llama", 768, 2048, 12, 12, 12, 64, 50257, 1e-5, 4096}},
      {"smollm-135m", {"llama", 576, 1536, 30, 9, 3, 64, 49152, 1e-5, 4096}},
      {"quickstart", {"llama", 128, 384, 4, 4, 4, 32, 288, 1e-5, 4096}},
      {"gpt124m", {"llama", 768, 2048, 12, 12, 12, 64, 50304, 1e-6, 32768}},
      {"qwen2.5-0.5b", {"qwen2", 896, 4864, 24, 14, 2, 64, 151936, 1e-6, 32768, true, 1e6}},
      {"qwen2.5-1.5b", {"qwen2", 1536, 8960, 28, 12, 2, 128, 151936, 1e-6, 32768, true, 1e6}},
      {"qwen2.5-7b", {"qwen2", 3584, 18944, 28, 28, 4, 128, 152064, 1e-6, 32768, false, 1e6}},
      {"qwen3-0.6b", {"qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 1e-6, 32768, true, 1e6}},
      {"llama3-8b", {"llama", 4096, 14336, 32, 32, 8, 128, 128256, 1e-5, 32768, false, 500000}},
      {"olmoe-1b-7b", {"olmoe", 2048, 1024, 16, 16, 16, 128, 50304, 1e-5, 4096, false, 10000, 64, 8, 1024}},
      {"qwen3-30b-a3b", {"qwen3_moe", 2048, 6144, 48, 32, 4, 128, 151936, 1e-6, 32768, false, 1e6, 128, 8, 768}},
      {"mixtral-8x7b", {"mixtral", 4096, 14336, 32, 32, 8, 128, 32000, 1e-5, 32768, false, 1e6, 8, 2, 14336}},
      {"gpt-oss-20b", {"gpt_oss", 2880, 2880, 24, 64, 8, 64, 201088, 1e-5, 131072, false, 150000, 32, 4, 2880}},
      {"gpt-oss-120b", {"gpt_oss", 2880, 2880, 36, 64, 8, 64, 201088, 1e-5, 131072, false, 150000, 128, 4, 2880}}};
  return all;
}

}  // namespace

std::vector<std::string> known_shapes() {
  std::vector<std::string> out;
  for (const auto& [name, shape] : shapes()) out.push_back(name);
  return out;
}

bool is_known_shape(const std::string& name) { return shapes().contains(name); }

Json known_shape(const std::string& name) {
  const auto found = shapes().find(name);
  const std::vector<std::string> known = known_shapes();
  HONE_CHECK(found != shapes().end(), "unknown shape '", name, "'", suggestion(name, known), "; known: ", join(known));
  const Shape& shape = found->second;
  // The config keys of llama. The other families read them as well.
  JsonObject out{{"model_type", shape.family},
                 {"hidden_size", shape.width},
                 {"intermediate_size", shape.mlp},
                 {"num_hidden_layers", shape.layers},
                 {"num_attention_heads", shape.heads},
                 {"num_key_value_heads", shape.kv_heads},
                 {"head_dim", shape.head_dim},
                 {"vocab_size", shape.vocabulary},
                 {"max_position_embeddings", shape.positions},
                 {"rope_theta", shape.rope_theta},
                 {"rms_norm_eps", shape.eps},
                 {"initializer_range", 0.02},
                 {"hidden_act", "silu"},
                 {"tie_word_embeddings", shape.tied}};
  if (shape.experts == 0) return out;
  out.emplace_back("num_experts", shape.experts);
  out.emplace_back("num_experts_per_tok", shape.choices);
  out.emplace_back("moe_intermediate_size", shape.expert_mlp);
  out.emplace_back("norm_topk_prob", std::string_view(shape.family) == "qwen3_moe");
  return out;
}

}  // namespace hone
