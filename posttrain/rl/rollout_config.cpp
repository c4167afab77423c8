#include "posttrain/rl/rollout_config.h"

#include "core/device/device.h"

namespace hone {

void RolloutConfig::fields(Fields& f) {
  EngineConfig::fields(f);
  f("device", device,
    "device of the engine if max_staleness is above 0, for example cuda:1 for the second GPU; empty = the learner's");
  pool.fields(f);
  f.require("device", device.empty() || devices().contains(device.substr(0, device.find(':'))),
            devices().unknown(device));
}

}  // namespace hone
