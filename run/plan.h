#pragma once
// What a recipe will cost, from the code that runs it: its stages' steps, the model's parameters and FLOPs, and the
// memory that a step takes, measured by running one on the meta device.
#include <string>

#include "core/io/json.h"
#include "run/recipe.h"

namespace hone {

// Everything that can be found wrong before a run begins: missing files, unknown tasks, settings that do not fit.
void check_recipe(const Recipe& recipe);

// {params, embedding_params, forward_flops_per_token, stages: [{name, kind, steps, tokens_per_step,
// train_flops_per_token, flops, trained_params, memory: {weights, gradients, optimizer, activations, scratch,
// reference, kv_cache, total}}]}; memory in bytes. The tokenizer need not exist: vocab_size is then the tokenizer
// stage's.
Json plan_recipe(const Recipe& recipe);
// Adds each stage's `seconds` and the plan's `flops_per_second`: an estimate, from the arithmetic the machine was
// measured to do (MachineLimits::flops).
void add_times(Json& plan, double flops_per_second);
std::string plan_text(const Json& plan);

}  // namespace hone
