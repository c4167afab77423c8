#include "posttrain/rl/rollout_config.h"

#include "core/device/device.h"

namespace hone {

void RolloutConfig::fields(Fields& f) {
  EngineConfig::fields(f);
  f("device", device,
    "device of the engine if max_staleness is above 0, for example cuda:1 for the second GPU; empty = the learner's");
  f("free_cache_engine", free_cache_engine,
    "true: the engine frees its KV cache, buffers, quantized weights and captured graphs while the learner trains, and "
    "the learner frees its activations while the engine generates. Each step allocates them again; results stay the "
    "same. For max_staleness = 0 on the learner's device");
  pool.fields(f);
  f.require("device", device.empty() || devices().contains(device.substr(0, device.find(':'))),
            devices().unknown(device));
  f.require("free_cache_engine", !free_cache_engine || shares_learner_device(),
            concat("free_cache_engine is for an engine that shares the learner's device: remove it, or remove ",
                   device.empty() ? "workers" : "device"));
}

}  // namespace hone
