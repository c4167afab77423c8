#include "posttrain/rl/worker_source.h"

#include <unistd.h>

#include <array>

#include "model/lora.h"

namespace hone {
namespace {

// The same of a run that is resumed here.
std::string run_id(const Run& run) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return concat(host.data(), ":", std::filesystem::absolute(run.folder).string());
}

WorkerSetup setup_of(const Run& run) {
  WorkerSetup out{.run = run_id(run),
                  .model = run.model->config(),
                  .lora = {},
                  .dtype = run.model->dtype(),
                  .device = run.context.kind(),
                  .numerics = run.context.numerics(),
                  .engine = run.recipe.rollout,
                  .tokenizer = tokenizer_files(*run.tokenizer)};
  if (run.model->lora()) out.lora = run.model->lora()->config;
  return out;
}

std::shared_ptr<const WeightChunks> frozen_blocks(Run& run) {
  const Tensor all = run.model->flat_values();
  return std::make_shared<WeightChunks>(
      run.device, Tensor(all.data, DType::u8, all.device, {WeightLayout::of(*run.model).frozen_bytes}));
}

}  // namespace

RolloutSource worker_source(Run& run, WeightQueue& weights, bool ahead) {
  const auto make = [&run, &weights, ahead] {
    const auto image = [&run, &weights, ahead, frozen = frozen_blocks(run),
                        host = std::make_shared<BufferPool>(run.device, MemoryKind::pinned)](int64_t version) {
      if (!ahead) weights.push(version);
      const WeightQueue::Kept kept = weights.take(version);
      return std::make_shared<const WeightSnapshot>(kept.version, run.device, kept.bytes, frozen, host);
    };
    return std::make_unique<WorkerPool>(run.recipe.rollout.pool, setup_of(run), run.device, image);
  };
  if (!ahead) return {.make = make};
  return {.make = make, .keep = [&weights](int64_t version) { weights.push(version); }};
}

}  // namespace hone
