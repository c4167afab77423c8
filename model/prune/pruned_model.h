#pragma once
// The two sides of structured pruning's guarantee: the pruned model, and the full model with the removed parts set to
// zero. Their logits have the same bits on a CPU: a sum over heads or channels is one chain of fused multiply-adds
// (kernels/gemm/gemm.h), and a term that is zero changes no bit of it.
#include "model/prune/prune_plan.h"

namespace hone {

// Copies what the plan keeps into a new model. full: a dense model in host memory, in f32, without adapters.
std::unique_ptr<Model> make_pruned(Context& context, Model& full, const PrunePlan& plan);

// Sets what the plan removes to zero: all parameters of a removed layer; of a head its rows of q and its columns of
// o; of a KV head also its rows of k and v; of a channel its rows of up and gate and its column of down.
void zero_removed(Model& full, const PrunePlan& plan);

}  // namespace hone
