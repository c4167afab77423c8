// The guarantee of structured pruning: the pruned model has the bits of the full model with zeros, in every family.
#include "model/prune/pruned_model.h"

#include <random>

#include "kernels/gemm/gemm.h"
#include "model/modules.h"
#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

// Sizes of a family's config. GPT-2 has its own names, and as many KV heads as heads.
struct Sizes {
  int64_t layers, heads, kv_heads, dim, channels;
};
Json sized(const Json& config, const Sizes& sizes) {
  return with(config, {{"num_hidden_layers", sizes.layers},
                       {"num_attention_heads", sizes.heads},
                       {"num_key_value_heads", sizes.kv_heads},
                       {"head_dim", sizes.dim},
                       {"intermediate_size", sizes.channels},
                       {"n_layer", sizes.layers},
                       {"n_inner", sizes.channels}});
}

std::vector<std::pair<std::string, Json>> dense_configs() {
  std::vector<std::pair<std::string, Json>> out;
  for (const char* family :
       {"gemma2", "gemma3_text", "gpt2", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3", "smollm3"}) {
    out.emplace_back(family, tiny_config(family));
    out.emplace_back(std::string(family) + " tied", with(tiny_config(family), {{"tie_word_embeddings", true}}));
  }
  const JsonObject biases{{"attention_bias", true}, {"mlp_bias", true}};
  out.emplace_back("llama with biases", with(tiny_config("llama"), biases));
  out.emplace_back("qwen3 with biases", with(tiny_config("qwen3"), biases));
  out.emplace_back("hone_decoder", tiny_config("hone_decoder"));
  out.emplace_back(
      "hone_decoder parallel",
      with(tiny_config("hone_decoder"),
           {{"norm_placement", "parallel"}, {"mlp", "plain"}, {"hidden_act", "relu2"}, {"mlp_bias", true}}));
  const JsonObject windows{{"use_sliding_window", true}, {"max_window_layers", 2}};
  out.emplace_back("qwen2 with windows", with(tiny_config("qwen2"), windows));
  out.emplace_back("qwen3 with windows", with(tiny_config("qwen3"), windows));
  return out;
}

std::vector<int64_t> random_part(std::mt19937& random, int64_t count, int64_t kept) {
  std::vector<double> scores(static_cast<size_t>(count));
  for (double& score : scores) score = static_cast<double>(random());
  return most_important(scores, kept);
}

int64_t below(std::mt19937& random, int64_t most) {
  return 1 + static_cast<int64_t>(random() % static_cast<uint32_t>(most));
}

// Random parts, other ones in each layer.
PrunePlan random_plan(std::mt19937& random, const Model& model) {
  const ModelShape& shape = model.shape();
  const int64_t group = shape.num_attention_heads / shape.num_kv_heads;
  const Json family = model.config().at("model_type");
  const bool prunes_heads = family != Json("gpt2") && family != Json("olmo2");
  const int64_t kept_kv = prunes_heads ? below(random, shape.num_kv_heads) : shape.num_kv_heads,
                kept_group = prunes_heads ? below(random, group) : group,
                channels = below(random, shape.intermediate_size);
  PrunePlan out;
  out.layers = random_part(random, shape.num_layers, below(random, shape.num_layers));
  for (size_t i = 0; i < out.layers.size(); ++i) {
    KeptParts& parts = out.parts.emplace_back();
    parts.kv_heads = random_part(random, shape.num_kv_heads, kept_kv);
    for (const int64_t kv_head : parts.kv_heads)
      for (const int64_t head : random_part(random, group, kept_group)) parts.heads.push_back(kv_head * group + head);
    parts.channels = random_part(random, shape.intermediate_size, channels);
  }
  return out;
}

// The logits of all tokens, through packed sequences and, decoded in steps, through a KV cache.
std::vector<float> logits_of(Context& context, Model& model) {
  const std::vector<int32_t> first = random_tokens(23, model.shape().vocab_size, 1),
                             second = random_tokens(9, model.shape().vocab_size, 2);
  std::vector<float> hidden = hidden_of(context, model, {{BatchPart{first}, BatchPart{second}}});
  TinyCache cache(context, model, 1);
  const std::vector<int64_t> sequence{0};
  for (const auto& [begin, count] : {std::pair<size_t, size_t>{0, 11}, {11, 1}, {12, 7}}) {
    const std::vector<BatchPart> part{{std::span(first).subspan(begin, count), static_cast<int32_t>(begin)}};
    std::ranges::copy(hidden_of(context, model, part, &cache.view(part, sequence)), std::back_inserter(hidden));
  }
  const int64_t rows = std::ssize(hidden) / model.shape().hidden_size;
  std::vector<float> logits(static_cast<size_t>(rows * model.shape().vocab_size));
  gemm_forward(context, {.y = host_view(std::span(logits)).view({rows, model.shape().vocab_size}),
                         .x = host_view(std::span(hidden)).view({rows, model.shape().hidden_size}),
                         .w = model.lm_head().value});
  return logits;
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST(PrunedModel, HasTheBitsOfTheFullModelWithZeros) {
  const auto device = cpu_device();
  Context context(*device);
  std::mt19937 random(5);
  // Odd sizes, and sums that are longer than any tile of a GEMM.
  constexpr Sizes shapes[] = {
      {2, 4, 2, 6, 20}, {5, 6, 2, 10, 37}, {3, 42, 14, 14, 643}, {4, 5, 5, 2, 1}, {1, 9, 3, 64, 300}};
  for (const auto& [name, config] : dense_configs())
    for (const Sizes& sizes : shapes)
      for (int draw = 0; draw < 3; ++draw) {
        const std::unique_ptr<Model> full = make_tiny(context, sized(config, sizes), false);
        const PrunePlan plan = random_plan(random, *full);
        const std::unique_ptr<Model> pruned = make_pruned(context, *full, plan);
        const std::vector<float> before = logits_of(context, *full);
        zero_removed(*full, plan);
        const std::vector<float> zeroed = logits_of(context, *full);
        EXPECT_TRUE(equal_bits(logits_of(context, *pruned), zeroed)) << name << ", " << sizes.channels << " channels";
        const bool removes = pruned->num_params() < full->num_params();
        EXPECT_NE(equal_bits(before, zeroed), removes) << name;
      }
}

// Layers that differ keep their own kinds when others are removed.
TEST(PrunedModel, RemovesLayersFromListsOfKinds) {
  const auto device = cpu_device();
  Context context(*device);
  std::mt19937 random(4);
  const Json config = with(tiny_config("hone_decoder"),
                           {{"num_hidden_layers", 3},
                            {"norm_placement", JsonArray{"parallel", "post", "both"}},
                            {"mlp", JsonArray{"plain", "gated", "plain"}},
                            {"hidden_act", JsonArray{"relu2", "gelu", "silu"}},
                            {"no_rope_layers", JsonArray{0, 1, 1}},
                            {"layer_types", JsonArray{"full_attention", "sliding_attention", "full_attention"}}});
  for (int draw = 0; draw < 8; ++draw) {
    const std::unique_ptr<Model> full = make_tiny(context, config, false);
    const PrunePlan plan = random_plan(random, *full);
    const std::unique_ptr<Model> pruned = make_pruned(context, *full, plan);
    EXPECT_EQ(pruned->config().at("mlp").as_array().size(), plan.layers.size());
    zero_removed(*full, plan);
    EXPECT_TRUE(equal_bits(logits_of(context, *pruned), logits_of(context, *full)));
  }
}

TEST(PrunedModel, KeepsTheBitsInBf16Folders) {
  const auto device = cpu_device();
  Context context(*device);
  std::mt19937 random(9);
  for (const auto& [name, config] : dense_configs()) {
    const TemporaryFolder source, zeros, pruned;
    save_model(context, *make_tiny(context, sized(config, {3, 6, 3, 8, 77}), false), source.path(), DType::bf16);
    const std::unique_ptr<Model> full = load_model(context, source.path());
    const PrunePlan plan = random_plan(random, *full);
    save_model(context, *make_pruned(context, *full, plan), pruned.path(), DType::bf16);
    zero_removed(*full, plan);
    save_model(context, *full, zeros.path(), DType::bf16);
    EXPECT_TRUE(equal_bits(logits_of(context, *load_model(context, pruned.path())),
                           logits_of(context, *load_model(context, zeros.path()))))
        << name;
  }
}

TEST(PrunedModel, ZerosOfTheOutputAloneGiveTheSameBits) {
  const auto device = cpu_device();
  Context context(*device);
  std::mt19937 random(2);
  const std::unique_ptr<Model> full = make_tiny(context, sized(tiny_config("qwen2"), {3, 8, 4, 6, 290}), false);
  const PrunePlan plan = random_plan(random, *full);
  const std::unique_ptr<Model> pruned = make_pruned(context, *full, plan);
  // Only the columns that read a removed part, and of removed layers only the matrices that write to the sum.
  for (int64_t layer = 0; layer < 3; ++layer) {
    const std::vector<Linear*> linears = full->layer_modules(layer).linears;
    const Tensor output = linears[1]->weight.value, down = linears[3]->weight.value;
    const auto at = std::ranges::find(plan.layers, layer);
    if (at == plan.layers.end()) {
      std::ranges::fill(output.as<float>(), 0.0f);
      std::ranges::fill(down.as<float>(), 0.0f);
      continue;
    }
    const KeptParts& parts = plan.parts[static_cast<size_t>(at - plan.layers.begin())];
    for (int64_t r = 0; r < output.dim(0); ++r) {
      for (const int64_t c : removed_of(columns_of_heads(parts.heads, 6), 48)) output.row<float>(r)[c] = 0;
      for (const int64_t c : removed_of(parts.channels, 290)) down.row<float>(r)[c] = 0;
    }
  }
  EXPECT_TRUE(equal_bits(logits_of(context, *pruned), logits_of(context, *full)));
}

}  // namespace hone::test
