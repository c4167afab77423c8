#pragma once
// The [rollout] table of a recipe: the engine that generates completions, and where it runs.
#include <string>

#include "rollout/engine.h"
#include "rollout/remote/config.h"

namespace hone {

struct RolloutConfig : EngineConfig {
  std::string device;  // of an engine that generates while the learner trains; empty = the learner's
  WorkerPoolConfig pool;
  // True if the engine takes memory of the learner's device.
  bool shares_learner_device() const { return device.empty() && pool.workers.empty(); }
  void fields(Fields& f);
};

}  // namespace hone
