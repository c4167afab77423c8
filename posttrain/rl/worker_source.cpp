#include "posttrain/rl/worker_source.h"

#include <unistd.h>

#include <array>

#include "model/lora.h"
#include "posttrain/rl/rollout_config.h"
#include "rollout/remote/worker_pool.h"

namespace hone {
namespace {

// A resumed run has the same id on the same machine.
std::string run_id(const StageContext& stage) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return concat(host.data(), ":", std::filesystem::absolute(stage.run_folder).string());
}

WorkerSetup setup_of(const StageContext& stage) {
  WorkerSetup out{.run = run_id(stage),
                  .model = stage.model->config(),
                  .lora = {},
                  .dtype = stage.model->dtype(),
                  .device = stage.context.kind(),
                  .numerics = stage.context.numerics(),
                  .engine = *stage.rollout,
                  .tokenizer = tokenizer_files(*stage.tokenizer)};
  if (stage.model->lora()) out.lora = stage.model->lora()->config;
  return out;
}

std::shared_ptr<const WeightChunks> frozen_chunks(StageContext& stage) {
  const Tensor all = stage.model->flat_values();
  return std::make_shared<WeightChunks>(
      stage.context.device(), Tensor(all.data, DType::u8, all.device, {WeightLayout::of(*stage.model).frozen_bytes}));
}

}  // namespace

RolloutSource worker_source(StageContext& stage, WeightQueue& weights, bool ahead) {
  const auto make = [&stage, &weights, ahead] {
    const auto image = [&stage, &weights, ahead, frozen = frozen_chunks(stage),
                        host =
                            std::make_shared<BufferPool>(stage.context.device(), MemoryKind::pinned)](int64_t version) {
      if (!ahead) weights.push(version);
      const WeightQueue::Kept kept = weights.take(version);
      return std::make_shared<const WeightSnapshot>(kept.version, stage.context.device(), kept.bytes, frozen, host);
    };
    return std::make_unique<WorkerPool>(stage.rollout->pool, setup_of(stage), stage.context.device(), image);
  };
  if (!ahead) return {.make = make};
  return {.make = make, .keep = [&weights](int64_t version) { weights.push(version); }};
}

}  // namespace hone
