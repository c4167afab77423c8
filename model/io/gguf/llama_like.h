#pragma once
// What GGUF architectures with the parts of Llama share: names of tensors, keys of sizes, RoPE and experts, and checks
// that llama.cpp computes what the model computes. llama.cpp's architectures fix many settings that config.json has.
#include "core/io/gguf/gguf_writer.h"
#include "model/io/gguf/rope.h"

namespace hone {

// Names of layers with a norm before attention and one before the MLP, with their attention and a dense MLP.
std::vector<GgufTensorName> gguf_llama_names();
// The same without the two norms and the MLP.
std::vector<GgufTensorName> gguf_attention_names();
std::vector<GgufTensorName> gguf_mlp_names();
// The router and the experts.
std::vector<GgufTensorName> gguf_expert_names();
std::vector<GgufTensorName> joined(std::initializer_list<std::vector<GgufTensorName>> parts);

struct GgufLlamaOptions {
  const char* activation_key = "hidden_act";
  const char* activation = "silu";  // that of llama.cpp; null: config.json's is not read
  bool experts = false;             // it has expert_count, and feed_forward_length may be missing
  bool partial_rope = false;        // rope.dimension_count may be smaller than a head
  GgufRopeOptions rope{};
};

// config.json of the keys of sizes, norms and RoPE.
Json read_gguf_llama(const GgufKeys& keys, bool tied, const char* model_type, const GgufLlamaOptions& options = {});
void write_gguf_llama(const Json& config, GgufWriter& out, const GgufLlamaOptions& options = {});

// num_experts and num_experts_per_tok.
void read_gguf_experts(const GgufKeys& keys, Json& config);
// expert_size: the key of config.json for the inner size of an expert; it becomes expert_feed_forward_length.
void write_gguf_experts(const Json& config, const char* expert_size, GgufWriter& out);

// A member of config.json that is there: of a config that the family has resolved.
int64_t count_of(const Json& config, const char* key);
double number_of(const Json& config, const char* key);

// Throws an Error unless the member is absent, null or `wanted`, with which llama.cpp always computes.
void require_setting(const Json& config, const char* key, const Json& wanted, const GgufWriter& out);
// The same for head_dim * num_attention_heads == hidden_size.
void require_square_heads(const Json& config, const GgufWriter& out);
// Layers with a sliding window: those whose index is not the last of each `period`. Throws an Error if a file or a
// config.json has others.
void check_window_pattern(const GgufKeys& keys, int64_t period);
void require_window_pattern(const Json& config, int64_t period, const GgufWriter& out);

}  // namespace hone
