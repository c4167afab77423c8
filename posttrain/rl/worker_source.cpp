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

WorkerSetup setup_of(const StageContext& stage, Model& model) {
  WorkerSetup out{.run = run_id(stage),
                  .model = model.config(),
                  .lora = {},
                  .dtype = model.dtype(),
                  .device = stage.context.kind(),
                  .numerics = stage.context.numerics(),
                  .engine = *stage.rollout,
                  .tokenizer = tokenizer_files(*stage.tokenizer)};
  if (model.lora()) out.lora = model.lora()->config;
  return out;
}

std::shared_ptr<const WeightChunks> frozen_chunks(StageContext& stage, Model& model) {
  const Tensor all = model.flat_values();
  return std::make_shared<WeightChunks>(
      stage.context.device(), Tensor(all.data, DType::u8, all.device, {WeightLayout::of(model).frozen_bytes}));
}

}  // namespace

RolloutSource worker_source(StageContext& stage, WeightQueue& weights, bool ahead) {
  const auto make = [&stage, &weights, ahead] {
    const auto image = [&stage, &weights, ahead, frozen = frozen_chunks(stage, *stage.model),
                        host =
                            std::make_shared<BufferPool>(stage.context.device(), MemoryKind::pinned)](int64_t version) {
      if (!ahead) weights.push(version);
      const WeightQueue::Kept kept = weights.take(version);
      return std::make_shared<const WeightSnapshot>(kept.version, stage.context.device(), kept.bytes, frozen, host);
    };
    return std::make_unique<WorkerPool>(stage.rollout->pool, setup_of(stage, *stage.model), stage.context.device(),
                                        image);
  };
  if (!ahead) return {.make = make};
  return {.make = make, .keep = [&weights](int64_t version) { weights.push(version); }};
}

std::unique_ptr<WorkerPool> make_frozen_pool(StageContext& stage, const std::vector<std::string>& workers, Model& model,
                                             const std::string& part) {
  WorkerPoolConfig config = stage.rollout->pool;
  config.workers = workers;
  WorkerSetup setup = setup_of(stage, model);
  setup.run += "/" + part;
  setup.engine = stage.rollout->as_exact();
  constexpr int64_t only_version = 1;
  WeightQueue queue(stage.context, model, WeightQueue::Keep::newest);
  queue.push(only_version);
  const auto snapshot = std::make_shared<const WeightSnapshot>(
      only_version, stage.context.device(), queue.take(only_version).bytes, frozen_chunks(stage, model),
      std::make_shared<BufferPool>(stage.context.device(), MemoryKind::pinned));
  auto out =
      std::make_unique<WorkerPool>(config, setup, stage.context.device(), [snapshot](int64_t) { return snapshot; });
  out->set_policy_version(only_version);
  return out;
}

}  // namespace hone
