#pragma once
// Experts in files that keep all of a layer in one tensor [experts, ...], as transformers 5 holds them in memory:
// PREFIX.experts.gate_up_proj [E, 2F, D] and PREFIX.experts.down_proj [E, D, F].
#include "model/io/tensor_file.h"

namespace hone {

// The file with such tensors under the names of single experts (PREFIX.experts.0.gate_proj.weight), or the file itself
// if it has none. mixtral: with the names of Mixtral's files (block_sparse_moe; w1, w3, w2).
std::unique_ptr<TensorFile> split_fused_experts(std::unique_ptr<TensorFile> file, bool mixtral);

}  // namespace hone
