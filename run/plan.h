#pragma once
// The cost of a recipe, from the code that runs it: steps of the stages, parameters and FLOPs of the model, and the
// memory of a step (run/stage_memory.h).
#include <string>

#include "core/io/json.h"
#include "run/recipe.h"

namespace hone {

// {params, embedding_params, forward_flops_per_token, stages: [{name, kind, steps, tokens_per_step,
// train_flops_per_token, flops, trained_params, memory: {weights, gradients, optimizer, activations, scratch,
// reference, kv_cache, ..., total}}]}; memory in bytes. The tokenizer need not exist: vocab_size is then the one of the
// tokenizer stage.
Json plan_recipe(const Recipe& recipe);
// Adds the estimated `seconds` of each stage and `flops_per_second` of the plan, from the measured FLOP/s of the
// machine (MachineLimits::flops).
void add_times(Json& plan, double flops_per_second);
std::string plan_text(const Json& plan);

}  // namespace hone
