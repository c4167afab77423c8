#pragma once
// Dry passes of single models on the meta device: what an engine and a scoring pass take. run/stage_memory.h adds
// them up.
#include <cstdint>

#include "core/device/device.h"
#include "model/model.h"
#include "rollout/engine.h"
#include "run/plan/dry_run.h"

namespace hone {

inline int64_t signed_bytes(size_t bytes) { return static_cast<int64_t>(bytes); }

// Bytes of all Buffers but the scratch memory, whose blocks grow and merge during a run.
int64_t held_bytes(Context& context);

// Upper bounds of what op bodies take of the scratch memory without reporting it to dry runs: logits of a block of rows
// and sums of the attention gradient; for a GPU also the workspace of cuBLASLt. A plan for a GPU by a build without
// CUDA (kind = "meta") knows none of the GPU's bodies: it adds the logits of a block of rows and their gradients.
int64_t uncounted_scratch(DeviceKind target, const ModelShape& shape, int64_t tokens, bool backward);

// Generates with an engine on `model` and returns the bytes that the engine holds by then. Its decode passes have every
// number of rows, since the completions end one after another.
int64_t generate_on(Context& context, Model& model, EngineConfig config, int64_t sequences, int64_t length);

// The KV cache of an engine for this model, or for its draft model.
int64_t kv_cache_bytes(const EngineConfig& engine, const Model& model, DType dtype);

// What a scoring pass (log-probs of held-out data, of a reference) over `tokens` tokens takes of the scratch memory at
// its peak.
int64_t scoring_scratch(Context& like, Model& model, int64_t length, int64_t tokens);

// Local judges of a stage's rewards on the learner's device: weights, KV caches, buffers and scratch memory of their
// engines. They are not divided among ranks. learner: the dry run's context, after the stage's model was made. A folder
// that an earlier stage writes is not there yet; its model counts as large as the stage's.
int64_t measure_judges(Context& learner, const Recipe& recipe, const PlannedStage& planned, const Model& model);

}  // namespace hone
