#include "run/recipe/parallel.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/device/device_peers.h"
#include "run/recipe/recipe.h"

namespace hone {

void ParallelConfig::fields(Fields& f) {
  constexpr int64_t most_ranks = 1024;
  f.alias_value("ranks", "auto", "0");
  f("ranks", ranks,
    "number of ranks: GPUs with a thread each, or threads on a CPU. \"auto\" (0) = the GPUs that no other program and "
    "no rollout.device uses, as many as have 2,048 tokens of an update each, or the one that device names; 1 on a CPU. "
    "Ranks above the number of GPUs share them");
  f("zero", zero,
    "ZeRO stage: what each rank keeps only a share of. 1 = optimizer states; gradients are exchanged once a step, and "
    "results depend on the number of ranks. 2 = gradients, too. 3 = the layers' weights, too. 2 and 3 have equal bits");
  f("micro_batch_multiple", micro_batch_multiple,
    "the number of micro-batches of a step is a multiple of it, as far as there are samples, and they are balanced by "
    "cost. It decides bits, so the resolved recipe has it; 0 = the number of ranks; 1 = as few micro-batches as fit");
  f("timeout", timeout, "seconds without progress after which a rank that the others wait for counts as hanging");
  f.require("ranks", ranks >= 0 && ranks <= most_ranks,
            concat("ranks must be \"auto\" (0) or in [1, ", most_ranks, "]"));
  f.require("zero", zero >= 1 && zero <= 3, "zero must be 1, 2 or 3");
  f.require("micro_batch_multiple", micro_batch_multiple >= 0 && micro_batch_multiple <= most_ranks,
            concat("micro_batch_multiple must be 0 (the number of ranks) or in [1, ", most_ranks, "]"));
  f.require("timeout", timeout >= 1 && timeout <= 1e6, "timeout must be in [1, 1e6] seconds");
}

namespace {

// The GPUs that a run on `kind` may use; `kind` itself if there are none, since opening it says why.
std::vector<std::string> visible_devices(const Recipe& recipe, const std::string& kind, const DevicePeers& peers) {
  const int count = peers.count();
  if (count == 0) return {kind};
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) {
    std::string name = concat(kind, ":", i);
    const std::string& sampler = recipe.rollout.device;
    if (name == sampler || (i == 0 && sampler == kind)) continue;
    out.push_back(std::move(name));
  }
  HONE_CHECK(!out.empty(), "rollout.device = ", recipe.rollout.device,
             " names the only GPU: remove it, or give the learner a device");
  return out;
}

}  // namespace

std::vector<std::string> rank_devices(const Recipe& recipe) {
  const int64_t wanted = recipe.parallel.ranks;
  const std::string& named = recipe.device.kind;
  // Opening the device says what "auto" is on this machine.
  const DeviceKind kind = named == "auto" ? open_device("auto")->kind() : device_kind(named);
  const DevicePeers* peers = peers_of(kind);
  const bool is_named = named.find(':') != std::string::npos;
  // "auto" has become a kind; another name stays as it is.
  std::vector<std::string> devices{named == "auto" ? std::string(name_of(kind)) : named};
  if (peers && !is_named && wanted != 1) devices = visible_devices(recipe, std::string(name_of(kind)), *peers);
  std::vector<std::string> out;
  const size_t count = wanted > 0 ? static_cast<size_t>(wanted) : devices.size();
  for (size_t rank = 0; rank < count; ++rank) out.push_back(devices[rank % devices.size()]);
  return out;
}

int64_t ranks_per_device(const std::vector<std::string>& devices) {
  int64_t out = 1;
  for (const std::string& name : devices) out = std::max<int64_t>(out, std::ranges::count(devices, name));
  return out;
}

}  // namespace hone
