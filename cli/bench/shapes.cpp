#include "cli/bench/shapes.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/base/rng.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "kernels/elementwise/cast.h"

namespace hone {
namespace {

// The config keys of llama. The other families read them as well.
Json config_of(const char* family, int64_t width, int64_t mlp, int64_t blocks, int64_t heads, int64_t kv_heads,
               int64_t head_dim, int64_t vocabulary, double eps, int64_t positions) {
  return JsonObject{
      {"model_type", family},        {"hidden_size", width},         {"intermediate_size", mlp},
      {"num_hidden_layers", blocks}, {"num_attention_heads", heads}, {"num_key_value_heads", kv_heads},
      {"head_dim", head_dim},        {"vocab_size", vocabulary},     {"max_position_embeddings", positions},
      {"rms_norm_eps", eps},         {"initializer_range", 0.02},    {"hidden_act", "silu"},
      {"tie_word_embeddings", true}};
}

// All have tied embeddings: their parameter counts equal those of other programs' benchmarks of the same name.
const std::map<std::string, Json>& shapes() {
  static const std::map<std::string, Json> all{
      {"llama-124m", config_of("llama", 768, 2048, 12, 12, 12, 64, 50257, 1e-5, 4096)},
      {"smollm-135m", config_of("llama", 576, 1536, 30, 9, 3, 64, 49152, 1e-5, 4096)},
      {"quickstart", config_of("llama", 128, 384, 4, 4, 4, 32, 288, 1e-5, 4096)},
      {"gpt124m", config_of("llama", 768, 2048, 12, 12, 12, 64, 50304, 1e-6, 32768)},
      {"qwen2.5-0.5b", config_of("qwen2", 896, 4864, 24, 14, 2, 64, 151936, 1e-6, 32768)},
      {"qwen2.5-1.5b", config_of("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, 1e-6, 32768)},
      {"qwen3-0.6b", config_of("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 1e-6, 32768)},
      {"llama3-8b", config_of("llama", 4096, 14336, 32, 32, 8, 128, 128256, 1e-6, 32768)}};
  return all;
}

}  // namespace

std::vector<std::string> model_bench_shapes() {
  std::vector<std::string> out;
  for (const auto& [name, config] : shapes()) out.push_back(name);
  return out;
}

std::unique_ptr<Model> make_bench_model(const std::string& shape) {
  const auto known = shapes().find(shape);
  if (known != shapes().end()) return make_model(known->second, shape);
  HONE_CHECK(std::filesystem::exists(shape), "bench: unknown shape '", shape, "'; known: ", join(model_bench_shapes()),
             ", or a config.json");
  return make_model(parse_json(read_file(shape), shape), shape);
}

void fill_weights(Context& context, Model& model) {
  if (context.kind() != DeviceKind::cuda) return model.initialize(context, 1);
  constexpr int64_t piece_size = (int64_t{1} << 20) - 64;  // not a multiple of a row
  constexpr double uniform_std = 0.28867513459481287;      // of [0, 1)
  const ScratchScope scope(context);
  const Tensor f32 = context.scratch().take(DType::f32, {piece_size}),
               piece = context.scratch().take(model.dtype(), {piece_size});
  Rng rng(1, 0);
  std::vector<float> host(static_cast<size_t>(piece_size));
  for (float& x : host) x = static_cast<float>((rng.uniform() - 0.5) * 0.02 / uniform_std);
  context.copy(f32, host_view(std::span(host)));
  cast(context, piece, f32);
  for (const Param* param : model.params()) {
    const Tensor flat = param->value.view({param->value.size()});
    for (int64_t at = 0; at < flat.size(); at += piece_size) {
      const int64_t count = std::min(piece_size, flat.size() - at);
      if (param->init_std > 0) {
        context.copy(flat.rows(at, count), piece.rows(0, count));
        continue;
      }
      const ScratchScope inner(context);
      const Tensor constant = context.scratch().take(DType::f32, {count});
      const std::vector<float> same(static_cast<size_t>(count), static_cast<float>(param->init_value));
      context.copy(constant, host_view(std::span(same)));
      cast(context, flat.rows(at, count), constant);
    }
  }
}

}  // namespace hone
