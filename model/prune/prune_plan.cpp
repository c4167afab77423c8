#include "model/prune/prune_plan.h"

#include <algorithm>
#include <numeric>

#include "kernels/gemm/gemm.h"
#include "model/layer.h"
#include "model/mtp.h"

namespace hone {
namespace {

// The names of the sizes in config.json. A null name: the family cannot change this size.
struct SizeKeys {
  const char *layers, *intermediate, *heads, *kv_heads;
};
SizeKeys keys_of(const Json& config) {
  if (config.at("model_type", "config.json") == Json("gpt2")) return {"n_layer", "n_inner", nullptr, nullptr};
  return {"num_hidden_layers", "intermediate_size", "num_attention_heads", "num_key_value_heads"};
}

std::vector<int64_t> indices(int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// Sums of `size` adjacent values; the last may have fewer.
std::vector<double> block_sums(std::span<const double> values, int64_t size) {
  std::vector<double> out((values.size() + static_cast<size_t>(size) - 1) / static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i) out[i / static_cast<size_t>(size)] += values[i];
  return out;
}

std::vector<int64_t> kept_channels(std::span<const double> scores, int64_t count, int64_t block) {
  if (count == std::ssize(scores)) return indices(count);
  std::vector<int64_t> out;
  for (const int64_t b : most_important(block_sums(scores, block), count / block))
    for (int64_t i = 0; i < block; ++i) out.push_back(b * block + i);
  return out;
}

KeptParts kept_parts(const ModelShape& shape, const PruneSizes& sizes, const LayerImportance& importance,
                     int64_t block) {
  const int64_t group = shape.num_attention_heads / shape.num_kv_heads,
                kept_group = sizes.num_attention_heads / sizes.num_kv_heads;
  const std::span<const double> heads = importance.heads;
  KeptParts out;
  out.kv_heads = most_important(block_sums(heads, group), sizes.num_kv_heads);
  for (const int64_t kv_head : out.kv_heads) {
    const auto scores = heads.subspan(static_cast<size_t>(kv_head * group), static_cast<size_t>(group));
    for (const int64_t head : most_important(scores, kept_group)) out.heads.push_back(kv_head * group + head);
  }
  out.channels = kept_channels(importance.channels, sizes.intermediate_size, block);
  return out;
}

// True if the columns keep their place in the steps of the tensor cores, and stay together in the chunks of K.
bool keeps_steps(std::span<const int64_t> kept) {
  constexpr int64_t step = 16;
  for (int64_t j = 0; j < std::ssize(kept); ++j) {
    const int64_t k = kept[static_cast<size_t>(j)];
    if (k % step != j % step) return false;
    if (j == 0) continue;
    const int64_t before = kept[static_cast<size_t>(j) - 1];
    if (j % step != 0 && before + 1 != k) return false;
    const bool together = before / gemm_cuda_chunk == k / gemm_cuda_chunk;
    if (together != ((j - 1) / gemm_cuda_chunk == j / gemm_cuda_chunk)) return false;
  }
  return true;
}

// The members of config.json with a value per layer. Families resolve intervals and patterns to such lists.
void prune_layer_lists(Json& config, int64_t num_layers, std::span<const int64_t> layers) {
  for (const char* key : {"layer_types", "no_rope_layers", "norm_placement", "hidden_act", "mlp"}) {
    const Json* list = config.find(key);
    if (!list || !list->is_array() || std::ssize(list->as_array()) < num_layers) continue;
    JsonArray kept;
    for (const int64_t layer : layers) kept.push_back(list->as_array()[static_cast<size_t>(layer)]);
    config.set(key, std::move(kept));
  }
  // Qwen: the first layers, whose attention has no window.
  const Json* first = config.find("max_window_layers");
  if (!first || !first->is_int()) return;
  const int64_t before = first->as_int(), kept = std::ranges::count_if(layers, [&](int64_t l) { return l < before; });
  config.set("max_window_layers", kept);
}

// True if each layer has the four matrices of attention and of one MLP.
bool is_dense(Model& model) {
  const ModelShape& shape = model.shape();
  const int64_t queries = shape.num_attention_heads * shape.head_dim, keys = shape.num_kv_heads * shape.head_dim;
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    const std::vector<Linear*> linears = model.layer_modules(layer).linears;
    if (linears.size() != 4) return false;
    const int64_t up = linears[2]->num_outputs();
    const bool fits = linears[0]->num_outputs() == queries + 2 * keys && linears[1]->weight.shape[1] == queries &&
                      (up == shape.intermediate_size || up == 2 * shape.intermediate_size) &&
                      linears[3]->weight.shape[1] == shape.intermediate_size;
    if (!fits) return false;
  }
  return true;
}

// A norm over all heads (OLMo 2) divides by their number.
bool norms_all_heads(Model& model) {
  const ModelShape& shape = model.shape();
  return std::ranges::any_of(model.layer_modules(0).params, [&](const Param* param) {
    return param->slices.front().name.ends_with("q_norm.weight") && param->shape[0] != shape.head_dim;
  });
}

}  // namespace

PruneSizes sizes_of(const ModelShape& shape) {
  return {shape.num_layers, shape.num_attention_heads, shape.num_kv_heads, shape.intermediate_size};
}

void check_prunable(Model& model, const PruneSizes& sizes) {
  const ModelShape& shape = model.shape();
  const Json config = model.config();
  const std::string family = config.at("model_type", "config.json").as_string("model_type");
  HONE_CHECK(is_dense(model) && dynamic_cast<LayerActivationSource*>(&model), "prune: the family '", family,
             "' cannot be pruned; only dense families can");
  HONE_CHECK(!mtp_of(model),
             "prune: the model has layers of multi-token prediction, which cannot be pruned; set "
             "num_nextn_predict_layers to 0 in its config.json");
  const SizeKeys keys = keys_of(config);
  const auto check = [](const char* name, int64_t size, int64_t full) {
    HONE_CHECK(size >= 1 && size <= full, "prune: ", name, " would be ", size, "; the model has ", full, ": give 1 to ",
               full);
  };
  check(keys.layers, sizes.num_layers, shape.num_layers);
  check(keys.intermediate, sizes.intermediate_size, shape.intermediate_size);
  if (sizes.num_attention_heads == shape.num_attention_heads && sizes.num_kv_heads == shape.num_kv_heads) return;
  HONE_CHECK(keys.heads, "prune: heads of the family '", family,
             "' cannot be removed: config.json has no head_dim, so the number of heads determines their size; remove "
             "layers or channels of the MLP");
  HONE_CHECK(
      !norms_all_heads(model), "prune: heads of the family '", family,
      "' cannot be removed: a norm over all heads divides by their number; remove layers or channels of the MLP");
  check(keys.heads, sizes.num_attention_heads, shape.num_attention_heads);
  check(keys.kv_heads, sizes.num_kv_heads, shape.num_kv_heads);
  const int64_t group = shape.num_attention_heads / shape.num_kv_heads;
  HONE_CHECK(
      sizes.num_attention_heads % sizes.num_kv_heads == 0 && sizes.num_attention_heads / sizes.num_kv_heads <= group,
      "prune: ", sizes.num_attention_heads, " heads cannot share ", sizes.num_kv_heads,
      " KV heads: each KV head needs equally many heads, at most ", group);
}

std::vector<int64_t> most_important(std::span<const double> scores, int64_t count) {
  std::vector<int64_t> order = indices(std::ssize(scores));
  std::ranges::stable_sort(
      order, [&](int64_t a, int64_t b) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)]; });
  order.resize(static_cast<size_t>(count));
  std::ranges::sort(order);
  return order;
}

PrunePlan plan_pruning(const ModelShape& shape, const PruneSizes& sizes, std::vector<int64_t> layers,
                       std::span<const LayerImportance> importance, int64_t block) {
  HONE_CHECK(block >= 1 && (sizes.intermediate_size == shape.intermediate_size || sizes.intermediate_size % block == 0),
             "prune: ", sizes.intermediate_size, " channels cannot be kept in blocks of ", block,
             ": give a multiple of the block");
  // A last block that is shorter than the others cannot be one of the kept.
  HONE_CHECK(sizes.intermediate_size == shape.intermediate_size || shape.intermediate_size % block == 0,
             "prune: the model's ", shape.intermediate_size, " channels are no multiple of the block ", block);
  PrunePlan out{.layers = std::move(layers), .parts = {}};
  for (const int64_t layer : out.layers)
    out.parts.push_back(kept_parts(shape, sizes, importance[static_cast<size_t>(layer)], block));
  return out;
}

std::vector<int64_t> removed_of(std::span<const int64_t> kept, int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i)
    if (!std::ranges::binary_search(kept, i)) out.push_back(i);
  return out;
}

std::vector<int64_t> columns_of_heads(std::span<const int64_t> heads, int64_t head_dim) {
  std::vector<int64_t> out;
  for (const int64_t head : heads)
    for (int64_t i = 0; i < head_dim; ++i) out.push_back(head * head_dim + i);
  return out;
}

bool keeps_gpu_sums(const ModelShape& shape, const PrunePlan& plan) {
  return std::ranges::all_of(plan.parts, [&](const KeptParts& parts) {
    return keeps_steps(parts.channels) && keeps_steps(columns_of_heads(parts.heads, shape.head_dim));
  });
}

Json pruned_config(const Model& full, const PrunePlan& plan) {
  Json config = full.config();
  const SizeKeys keys = keys_of(config);
  const KeptParts& parts = plan.parts.front();
  prune_layer_lists(config, full.shape().num_layers, plan.layers);
  config.set(keys.layers, std::ssize(plan.layers));
  config.set(keys.intermediate, std::ssize(parts.channels));
  if (!keys.heads) return config;
  config.set(keys.heads, std::ssize(parts.heads));
  config.set(keys.kv_heads, std::ssize(parts.kv_heads));
  config.set("head_dim", full.shape().head_dim);
  return config;
}

}  // namespace hone
