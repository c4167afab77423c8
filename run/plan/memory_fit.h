#pragma once
// Fits a recipe into the memory of its device: device.memory. Keys that the recipe does not set are chosen, the least
// costly changes first. The weights that are trained are never changed: LoRA is advice, not a choice.
#include <string>
#include <vector>

#include "core/device/device.h"
#include "run/recipe/recipe.h"

namespace hone {

// A key that was changed, and what for.
struct MemoryChoice {
  std::string key;            // as an override has it: "stage.grpo.recompute"
  std::string before, after;  // TOML values
  int64_t saved_bytes = 0;
  std::string cost;  // "about 30% more training time"
};

// The plan of a recipe under a limit.
struct MemoryFit {
  int64_t limit_bytes = 0;
  int64_t planned_bytes = 0;  // the highest peak of the stages
  std::string stage;          // that has it
  std::vector<MemoryChoice> choices;
};

// Bytes that a rank may allocate on `device`: device.memory as a size, or its share of 90% of what is free for "auto".
// ranks: that share the device.
int64_t memory_limit(const DeviceSettings& settings, const Device& device, int64_t ranks = 1);
// The same for a plan, which opens the device itself. Throws Error for "auto" on a machine without the device.
int64_t memory_limit(const DeviceSettings& settings, int64_t ranks = 1);
// Changes `recipe` so that every stage of a run on `ranks` ranks fits into limit_bytes on each. Throws an Error of one
// sentence if nothing fits: what is needed, what is there, and what would help.
MemoryFit fit_memory(Recipe& recipe, int64_t limit_bytes, size_t ranks = 1);
// The plan and a table of the choices. `key=after` of a choice is an override, in a shell too.
std::string fit_text(const MemoryFit& fit);
Json fit_json(const MemoryFit& fit);

}  // namespace hone
