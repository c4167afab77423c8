#pragma once
// The memory of a rank in a stage at its peak, by owner. Dry runs on the meta device take it (run/dry_run.h): a
// training step over the largest micro-batch, a scoring pass, and an engine that generates. They run the code that the
// stage runs.
#include "core/io/json.h"
#include "model/flops.h"
#include "run/plan/dry_run.h"

namespace hone {

struct StageMemory {
  // By owner, and their sum as "total". "overlap" is negative: what owners hold at different times (free_cache_engine).
  Json bytes;
  ModelFlops flops;  // of the stage's model, for the longest samples
  // Of the engine that samples, as it reports them (EngineStats); 0 if the stage samples nothing.
  int64_t kv_bytes_per_token = 0, kv_window_tokens = 0;
};

// planned: of this recipe.
StageMemory measure_stage_memory(const Recipe& recipe, const PlannedStage& planned, const RankLayout& layout, int rank);
// The memory of the rank that needs most. Ranks differ by their shards and by what they sample.
StageMemory measure_largest_rank(const Recipe& recipe, const PlannedStage& planned, const RankLayout& layout);

}  // namespace hone
