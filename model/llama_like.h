#pragma once
// Decoder: the RMS-norm decoder with rotary positions and a gated MLP that llama, qwen2, qwen3 and mistral share. A
// family's file says what differs.
#include "model/config_reader.h"
#include "model/transformer.h"

namespace hone {

struct LlamaLikeConfig {
  ModelShape shape;
  bool tied = false, qkv_bias = false, output_bias = false, mlp_bias = false, qk_norm = false;
  double norm_eps = 1e-6, init_std = 0.02;
  RopeConfig rotary;
  std::vector<int64_t> windows;  // of each layer, 0 = all earlier tokens
  Json resolved;                 // config.json
};

// What the families' config.json have in common; biases, norms and windows are left for the family to say.
// `architecture` is transformers' class; without a head_dim a head has `head_dim` dims, or its share of the width.
LlamaLikeConfig read_llama_like(ConfigReader& config, const char* architecture,
                                std::optional<int64_t> head_dim = std::nullopt);

class LlamaLike : public Transformer<RmsNorm, GatedMlp> {
 public:
  explicit LlamaLike(const LlamaLikeConfig& config);

 private:
  void allocate_tables(Context& context) override;

  RopeConfig rotary_;
  Buffer rotary_bytes_;
};

}  // namespace hone
