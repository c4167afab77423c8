#include "run/rank_choice.h"

#include <algorithm>

#include "core/base/suggest.h"
#include "core/config/byte_size.h"
#include "core/device/cuda_facts.h"
#include "core/device/device.h"
#include "run/plan/dry_run.h"

namespace hone {
namespace {

std::vector<GpuMemory> memory_of(const std::vector<std::string>& names) {
  const std::optional<CudaFacts> facts = find_cuda();
  std::vector<GpuMemory> out;
  for (const std::string& name : names) {
    GpuMemory& gpu = out.emplace_back();
    gpu.name = name;
    const size_t index = std::stoul(name.substr(name.find(':') + 1));
    try {
      gpu.free_bytes = open_device(name)->free_bytes();
      gpu.total_bytes = facts && index < facts->gpus.size() ? facts->gpus[index].total_bytes : gpu.free_bytes;
    } catch (const Error& error) {  // such as a GPU whose memory another program has taken
      gpu.error = error.what();
    }
  }
  return out;
}

}  // namespace

RankChoice without_busy(const std::vector<GpuMemory>& gpus) {
  RankChoice out;
  for (const GpuMemory& gpu : gpus) {
    if (gpu.error.empty() && gpu.free_bytes >= gpu.total_bytes / 4 * 3) {
      out.devices.push_back(gpu.name);
      continue;
    }
    const auto free = static_cast<int64_t>(gpu.free_bytes), total = static_cast<int64_t>(gpu.total_bytes);
    out.notes.push_back(concat(gpu.name, " is left out: ",
                               gpu.error.empty() ? concat("other programs use ", byte_size_text(total - free),
                                                          " of its ", byte_size_text(total))
                                                 : gpu.error,
                               "; parallel.ranks = ", gpus.size(), " uses it"));
  }
  if (!out.devices.empty()) return out;
  out.notes.clear();
  for (const GpuMemory& gpu : gpus) out.devices.push_back(gpu.name);
  return out;
}

UpdateTokens update_tokens(const Recipe& recipe) {
  UpdateTokens out;
  double most = -1;
  for (const PlannedStage& planned : planned_stages(recipe)) {
    const int64_t longest = planned.step.sequences * planned.length,
                  tokens = planned.step.equal_lengths ? longest : longest / 2;
    const double all = static_cast<double>(tokens) * static_cast<double>(planned.step.updates) *
                       static_cast<double>(std::max<int64_t>(1, recipe.stage[planned.index].stage->steps()));
    if (all <= most) continue;
    most = all;
    out = {.name = recipe.stage[planned.index].name, .tokens = tokens};
  }
  return out;
}

void leave_idle_out(RankChoice& choice, const UpdateTokens& update) {
  constexpr int64_t least_tokens = 2048;  // a smaller part takes less time than its exchange
  const size_t all = choice.devices.size(),
               useful = static_cast<size_t>(std::max<int64_t>(1, update.tokens / least_tokens));
  if (update.name.empty() || useful >= all) return;
  choice.devices.resize(useful);
  choice.notes.push_back(concat("parallel.ranks = \"auto\" takes ", useful, " of ", all, " GPUs: an update of stage ",
                                update.name, " has about ", update.tokens, " tokens, and a rank should have ",
                                least_tokens, " or more; parallel.ranks = ", all, " uses all"));
}

RankChoice choose_ranks(const Recipe& recipe) {
  RankChoice out{.devices = rank_devices(recipe), .notes = {}};
  if (recipe.parallel.ranks != 0 || out.devices.size() < 2) return out;
  out = without_busy(memory_of(out.devices));
  leave_idle_out(out, update_tokens(recipe));
  return out;
}

}  // namespace hone
