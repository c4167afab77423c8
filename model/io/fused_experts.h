#pragma once
// Experts in files that keep all of a layer in one tensor [experts, ...], as transformers 5 holds them in memory:
// PREFIX.experts.gate_up_proj [E, 2F, D] and PREFIX.experts.down_proj [E, D, F].
#include <optional>
#include <string>

#include "model/io/tensor_file.h"

namespace hone {

// The fused tensor that holds an expert's matrix or bias, by the name of the latter:
// PREFIX.experts.3.gate_proj.weight -> PREFIX.experts.gate_up_proj, and with .bias PREFIX.experts.gate_up_proj_bias.
// Nothing for other names.
std::optional<std::string> fused_expert_name(std::string_view name);

// The file with such tensors under the names of single experts (PREFIX.experts.0.gate_proj.weight), or the file itself
// if it has none. mixtral: with the names of Mixtral's files (block_sparse_moe; w1, w3, w2).
std::unique_ptr<TensorFile> split_fused_experts(std::unique_ptr<TensorFile> file, bool mixtral);

}  // namespace hone
