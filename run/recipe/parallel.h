#pragma once
// [parallel] of a recipe: how many ranks run it, and on which devices. A rank is one device with its thread
// (core/comm/launch.h).
#include <string>
#include <vector>

#include "core/config/fields.h"

namespace hone {

struct Recipe;

struct ParallelConfig {
  int64_t ranks = 0;  // 0: as many as the machine has GPUs for
  int64_t zero = 2;
  // 0: the number of ranks of a new run. A resumed run of a version without this key has 0 and means 1.
  int64_t micro_batch_multiple = 0;
  double timeout = 600;  // seconds
  void fields(Fields& f);
};

// The device of each rank: "cuda:0", "cuda:1", ...; ranks beyond the number of GPUs share them. "auto" is one rank on
// the CPU, and on GPUs one per visible GPU that rollout.device does not name, unless recipe.device names one GPU.
std::vector<std::string> rank_devices(const Recipe& recipe);
// The greatest number of ranks that share one of these devices.
int64_t ranks_per_device(const std::vector<std::string>& devices);

}  // namespace hone
