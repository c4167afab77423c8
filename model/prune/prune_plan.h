#pragma once
// PrunePlan: which parts of a dense model structured pruning keeps. Parts are layers, and in each kept layer query
// heads, KV heads and channels of the MLP. config.json has one number for each, so all layers keep equally many.
//
// The embedding width is no part: a norm divides by the width, so a model with fewer columns differs from the model
// with zeros in them by more than the order of sums.
#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace hone {

// Sizes after pruning.
struct PruneSizes {
  int64_t num_layers = 0, num_attention_heads = 0, num_kv_heads = 0, intermediate_size = 0;
  bool operator==(const PruneSizes&) const = default;
};
PruneSizes sizes_of(const ModelShape& shape);

// How much the parts of a layer matter (model/prune/importance.h).
struct LayerImportance {
  double block_influence = 0;
  std::vector<double> heads, channels;  // of each query head, of each channel of the MLP
};

// Indices of the full model, ascending.
struct KeptParts {
  std::vector<int64_t> heads, kv_heads, channels;
};
struct PrunePlan {
  std::vector<int64_t> layers;
  std::vector<KeptParts> parts;  // of each kept layer
};

// Throws Error unless the model is of a dense family and can have these sizes. The Error says which it can have.
void check_prunable(Model& model, const PruneSizes& sizes);

// The `count` indices with the largest scores, ascending. The earlier of equal scores wins.
std::vector<int64_t> most_important(std::span<const double> scores, int64_t count);

// Keeps the given layers, and in each the most important parts. A KV head goes with all its query heads and counts as
// their sum. If a group loses query heads only, each kept group keeps its most important ones. Channels are kept in
// aligned blocks of `block`.
PrunePlan plan_pruning(const ModelShape& shape, const PruneSizes& sizes, std::vector<int64_t> layers,
                       std::span<const LayerImportance> importance, int64_t block);

// The indices below `count` that are not in `kept`.
std::vector<int64_t> removed_of(std::span<const int64_t> kept, int64_t count);

// Columns of the attention's output projection.
std::vector<int64_t> columns_of_heads(std::span<const int64_t> heads, int64_t head_dim);

// True if the pruned model has the bits of the zeroed one on a GPU, too: what is kept keeps its place in the steps of
// 16 and in the chunks of gemm_cuda_chunk in which the tensor cores sum (kernels/gemm/gemm.h). On a CPU it always has.
bool keeps_gpu_sums(const ModelShape& shape, const PrunePlan& plan);

// config.json of the pruned model.
Json pruned_config(const Model& full, const PrunePlan& plan);

}  // namespace hone
