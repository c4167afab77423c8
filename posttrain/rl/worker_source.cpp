#include "posttrain/rl/worker_source.h"

#include <unistd.h>

#include <array>

#include "model/lora.h"
#include "posttrain/rl/rollout_config.h"
#include "rollout/remote/worker_pool.h"

namespace hone {
namespace {

// A resumed run has the same id on the same machine.
std::string run_id(const std::filesystem::path& run_folder) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return concat(host.data(), ":", std::filesystem::absolute(run_folder).string());
}

WorkerSetup setup_of(Context& context, Model& model, const Tokenizer& tokenizer, const EngineConfig& engine,
                     const std::filesystem::path& run_folder) {
  WorkerSetup out{.run = run_id(run_folder),
                  .model = model.config(),
                  .lora = {},
                  .dtype = model.dtype(),
                  .device = context.kind(),
                  .numerics = context.numerics(),
                  .engine = engine,
                  .tokenizer = tokenizer_files(tokenizer)};
  if (model.lora()) out.lora = model.lora()->config;
  return out;
}

std::shared_ptr<const WeightChunks> frozen_chunks(Context& context, Model& model) {
  const Tensor all = model.flat_values();
  return std::make_shared<WeightChunks>(
      context.device(), Tensor(all.data, DType::u8, all.device, {WeightLayout::of(model).frozen_bytes}));
}

}  // namespace

RolloutSource worker_source(StageContext& stage, WeightQueue& weights, bool ahead) {
  const auto make = [&stage, &weights, ahead] {
    const auto image = [&stage, &weights, ahead, frozen = frozen_chunks(stage.context, *stage.model),
                        host =
                            std::make_shared<BufferPool>(stage.context.device(), MemoryKind::pinned)](int64_t version) {
      if (!ahead) weights.push(version);
      const WeightQueue::Kept kept = weights.take(version);
      return std::make_shared<const WeightSnapshot>(kept.version, stage.context.device(), kept.bytes, frozen, host);
    };
    const WorkerSetup setup = setup_of(stage.context, *stage.model, *stage.tokenizer, *stage.rollout, stage.run_folder);
    return std::make_unique<WorkerPool>(stage.rollout->pool, setup, stage.context.device(), image);
  };
  if (!ahead) return {.make = make};
  return {.make = make, .keep = [&weights](int64_t version) { weights.push(version); }};
}

std::unique_ptr<GenerationBackend> worker_backend(Context& context, Model& model, const Tokenizer& tokenizer,
                                                  const EngineConfig& engine, const WorkerPoolConfig& pool,
                                                  const std::filesystem::path& run_folder) {
  WeightQueue weights(context, model, WeightQueue::Keep::newest);
  weights.push(0);
  const auto snapshot =
      std::make_shared<const WeightSnapshot>(0, context.device(), weights.take(0).bytes, frozen_chunks(context, model),
                                             std::make_shared<BufferPool>(context.device(), MemoryKind::pinned));
  auto out = std::make_unique<WorkerPool>(pool, setup_of(context, model, tokenizer, engine, run_folder),
                                          context.device(), [snapshot](int64_t) { return snapshot; });
  out->set_policy_version(0);
  return out;
}

}  // namespace hone
