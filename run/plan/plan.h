#pragma once
// The cost of a recipe, from the code that runs it: steps of the stages, parameters and FLOPs of the model, and the
// memory of a step (run/stage_memory.h).
#include <string>

#include "core/io/json.h"
#include "run/plan/device_rates.h"
#include "run/recipe/recipe.h"

namespace hone {

// {params, embedding_params, active_params, forward_flops_per_token, layout: {ranks, zero, micro_batch_multiple,
// exchanges_beside_backward}, stages: [{name, kind, steps, tokens_per_step, train_flops_per_token, flops,
// trained_params, memory, micro_batches, rounds, largest_micro_batch, tokens_in_turn, ranks: [{rank, memory,
// micro_batches, tokens, sent_bytes, received_bytes, exchanges: {NAME: {calls, sent_bytes, received_bytes}}}]}]}.
// Figures of work and exchanges are those of a step. memory: {weights, gradients, optimizer, activations, scratch,
// reference, kv_cache, ..., overlap, total} in bytes; a stage's is that of the rank that needs most. The tokenizer need
// not exist: vocab_size is then the one of the tokenizer stage. ranks: of the run.
Json plan_recipe(const Recipe& recipe, size_t ranks = 1);
// Adds estimates: the `seconds` of each stage, step_seconds: {passes, update, exchange, total} of each stage and of
// each rank, and the rates that they are computed with. exchange: what does not run beside a backward pass.
void add_times(Json& plan, const DeviceRates& rates);
std::string plan_text(const Json& plan);

}  // namespace hone
