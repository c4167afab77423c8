#pragma once
// Small models for tests, and a minimal paged cache.
#include <algorithm>
#include <cstring>
#include <random>

#include "model/forward.h"
#include "model/model.h"
#include "tests/support/support.h"

namespace hone::test {

inline std::unique_ptr<Device> cpu_device() { return devices().at("cpu")(0); }

// A config.json that every family reads as a tiny model; it has the keys of all families. A token uses all experts:
// with fewer, finite differences would cross borders between choices.
inline Json tiny_config(const std::string& family) {
  return JsonObject{{"model_type", family},
                    {"vocab_size", 19},
                    {"initializer_range", 0.3},
                    {"hidden_size", 12},
                    {"intermediate_size", 20},
                    {"num_hidden_layers", 2},
                    {"num_attention_heads", 4},
                    {"num_key_value_heads", 2},
                    {"head_dim", 6},
                    {"max_position_embeddings", 40},
                    {"rms_norm_eps", 1e-5},
                    {"rope_theta", 100.0},
                    {"tie_word_embeddings", false},
                    {"sliding_window", 5},
                    {"num_experts", 4},
                    {"num_experts_per_tok", 4},
                    {"moe_intermediate_size", 10},
                    {"shared_expert_intermediate_size", 14},
                    {"router_aux_loss_coef", 0.1},
                    {"kv_lora_rank", 8},
                    {"q_lora_rank", 10},
                    {"qk_rope_head_dim", 4},
                    {"qk_nope_head_dim", 6},
                    {"v_head_dim", 5},
                    {"n_routed_experts", 4},
                    {"n_group", 2},
                    {"topk_group", 2},
                    {"first_k_dense_replace", 1},
                    {"n_embd", 12},
                    {"n_layer", 2},
                    {"n_head", 4},
                    {"n_positions", 40}};
}

// Returns true if a message contains the words.
inline bool says(const std::string& message, const std::string& words) {
  return message.find(words) != std::string::npos;
}

inline Json with(Json config, const JsonObject& changes) {
  for (const auto& [key, value] : changes) config.set(key, value);
  return config;
}

// Gives a model weights in which every parameter differs from its neutral value, norms and biases too. Adapters do not
// change the other weights.
inline void make_weights(Context& context, Model& model, bool gradients) {
  model.allocate(context, DType::f32, gradients);
  model.initialize(context, 7);
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.1f);
  for (Param* param : model.params())
    for (float& value : param->value.as<float>()) value += normal(random);
}

inline std::unique_ptr<Model> make_tiny(Context& context, const Json& config, bool gradients = true,
                                        const LoraConfig& lora = {}) {
  std::unique_ptr<Model> model = make_model(config, "test");
  if (lora.r > 0) model->add_lora(lora);
  make_weights(context, *model, gradients);
  return model;
}

inline std::vector<int32_t> random_tokens(size_t count, int64_t vocab_size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> out(count);
  for (int32_t& id : out) id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size));
  return out;
}

inline std::vector<int32_t> all_rows(int64_t count) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(i);
  return out;
}

// Returns the hidden state of every token of the parts, [T, D].
inline std::vector<float> hidden_of(Context& context, Model& model, std::span<const BatchPart> parts,
                                    const KvView* kv = nullptr) {
  ScratchScope scope(context);
  const Batch batch = pack_batch(context, context.scratch(), parts);
  const std::vector<int32_t> rows = all_rows(batch.num_tokens);
  return download(context,
                  infer(context, model, batch, upload(context, context.scratch(), std::span<const int32_t>(rows)), kv));
}

// Block b of sequence s is the pool's block (b * num_sequences + s) * 5 modulo the pool's size, so that neighbors in a
// sequence are not adjacent.
class TinyCache {
 public:
  TinyCache(Context& context, const Model& model, int64_t num_sequences)
      : context_(context), arena_(context.device()), num_sequences_(num_sequences) {
    for (const KvGroupShape& group : model.kv_groups())
      for (int64_t plane = 0; plane < group.planes; ++plane) {
        const auto take = [&](int64_t dim) {
          const Tensor out = arena_.take(DType::f32, {pool * block_size, group.num_kv_heads, dim});
          std::ranges::fill(out.as<float>(), std::numeric_limits<float>::quiet_NaN());
          return out;
        };
        LayerKv& layer = view_.layers.emplace_back();
        layer.k = take(group.key_dim);
        if (group.value_dim > 0) layer.v = take(group.value_dim);
      }
    view_.block_size = block_size;
  }
  // parts[i] continues sequence ids[i]; the view is valid until the next call.
  const KvView& view(std::span<const BatchPart> parts, std::span<const int64_t> ids) {
    slots_.clear(), table_.clear(), lengths_.clear();
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto length = static_cast<int64_t>(parts[i].tokens.size()), start = int64_t{parts[i].start};
      for (int64_t p = start; p < start + length; ++p)
        slots_.push_back(static_cast<int32_t>(block(ids[i], p / block_size) * block_size + p % block_size));
      for (int64_t b = 0; b < max_blocks; ++b) table_.push_back(static_cast<int32_t>(block(ids[i], b)));
      lengths_.push_back(static_cast<int32_t>(start + length));
    }
    view_.groups = {
        {.slots = host_view(std::span(slots_)),
         .block_table = host_view(std::span(table_)).view({static_cast<int64_t>(parts.size()), max_blocks})}};
    view_.lengths = host_view(std::span(lengths_));
    return view_;
  }

 private:
  static constexpr int64_t block_size = 4, max_blocks = 10, pool = 32;
  int64_t block(int64_t sequence, int64_t index) const { return (index * num_sequences_ + sequence) * 5 % pool; }

  Context& context_;
  Arena arena_;
  int64_t num_sequences_;
  KvView view_;
  std::vector<int32_t> slots_, table_, lengths_;
};

}  // namespace hone::test
