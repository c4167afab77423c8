#pragma once
// The [rollout] table of a recipe: the engine that generates completions, and where it runs.
#include <string>

#include "rollout/engine.h"
#include "rollout/remote/config.h"

namespace hone {

struct RolloutConfig : EngineConfig {
  std::string device;              // device of an engine that generates while the learner trains; empty = the learner's
  bool free_cache_engine = false;  // takes_turns()
  WorkerPoolConfig pool;
  // True if the engine uses memory of the learner's device.
  bool shares_learner_device() const { return device.empty() && pool.workers.empty(); }
  // True if the learner and the engine hold memory of the learner's device in turn: Engine::rest() while the learner
  // trains, Trainer::free_activations() while the engine generates. synchronous: max_staleness is 0.
  bool takes_turns(bool synchronous) const { return synchronous && shares_learner_device() && free_cache_engine; }
  void fields(Fields& f);
};

}  // namespace hone
