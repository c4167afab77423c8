// GGUF's architecture gpt2.
#include "core/io/gguf/gguf_writer.h"
#include "model/io/gguf/architecture.h"

namespace hone {
namespace {

const std::vector<GgufTensorName> names = {
    {"token_embd", "transformer.wte"},
    {"position_embd", "transformer.wpe"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"blk.*.attn_norm", "transformer.h.*.ln_1"},
    {"blk.*.attn_qkv", "transformer.h.*.attn.c_attn"},
    {"blk.*.attn_output", "transformer.h.*.attn.c_proj"},
    {"blk.*.ffn_norm", "transformer.h.*.ln_2"},
    {"blk.*.ffn_up", "transformer.h.*.mlp.c_fc"},
    {"blk.*.ffn_down", "transformer.h.*.mlp.c_proj"},
};

Json read_config(const GgufKeys& keys, bool tied) {
  return JsonObject{{"model_type", "gpt2"},
                    {"n_embd", keys.count("embedding_length")},
                    {"n_layer", keys.count("block_count")},
                    {"n_head", keys.count("attention.head_count")},
                    {"n_inner", keys.count("feed_forward_length")},
                    {"n_positions", keys.count("context_length")},
                    {"activation_function", "gelu_new"},
                    {"layer_norm_epsilon", keys.number("attention.layer_norm_epsilon", 1e-5)},
                    {"tie_word_embeddings", tied}};
}

void write_keys(const Json& config, GgufWriter& out) {
  const std::string& activation = config.at("activation_function", "config.json").as_string("activation_function");
  HONE_CHECK(activation == "gelu_new" || activation == "gelu_pytorch_tanh", "config.json: activation_function '",
             activation, "' has no key in GGUF; gpt2 uses gelu_new");
  const auto count = [&](const char* name) { return config.at(name, "config.json").as_int(name); };
  out.count("context_length", count("n_positions"));
  out.count("embedding_length", count("n_embd"));
  out.count("block_count", count("n_layer"));
  out.count("feed_forward_length", count("n_inner"));
  out.count("attention.head_count", count("n_head"));
  out.number("attention.layer_norm_epsilon",
             config.at("layer_norm_epsilon", "config.json").as_double("layer_norm_epsilon"));
}

[[maybe_unused]] const bool added = gguf_architectures().add(
    "gpt2",
    {.model_types = {"gpt2"}, .names = names, .transposed = true, .config = read_config, .write_keys = write_keys});

}  // namespace
}  // namespace hone
