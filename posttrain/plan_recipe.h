#pragma once
// What a recipe will cost, from the code that runs it: its stages' steps, the model's parameters and FLOPs, and the memory that a step takes, measured by
// running one on the meta device.
#include <string>

#include "core/json.h"
#include "posttrain/recipe.h"

namespace hone {

// Everything that can be found wrong before a run begins: missing files, unknown tasks, settings that do not fit.
void check_recipe(const Recipe& recipe);

// {params, stages: [{name, steps, tokens_per_step, flops_per_token, seconds}], memory: {weights, gradients, optimizer, activations, kv_cache}, ...}; bytes
// and seconds. The tokenizer need not exist: vocab_size is then the tokenizer stage's.
Json plan_recipe(const Recipe& recipe);
std::string plan_text(const Json& plan);

}  // namespace hone
