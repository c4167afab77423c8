#include "train/memory_plan.h"

#include <algorithm>

#include "train/trainer.h"

namespace hone {
namespace {

// Peak bytes of a step on `sequences` samples of `tokens` tokens in total, all trained on, planned for the device of
// `context`.
PeakBytes count_step(Context& context, const Model& model, TrainerConfig config, const Objective& objective,
                     size_t sequences, int64_t tokens) {
  const std::unique_ptr<Device> device = devices().at("meta")(0);
  Context counting(*device);
  counting.plan_for(context.kind());
  counting.set_numerics(context.numerics());
  const std::unique_ptr<Model> shape = model.same_shape();
  shape->allocate(counting, model.dtype(), true);
  config.micro_batch_tokens = tokens;
  config.micro_batch_multiple = 1;
  Trainer trainer(counting, *shape, config);
  std::vector<Sample> widest(sequences);
  std::vector<const Sample*> batch;
  for (size_t i = 0; i < sequences; ++i) {
    const auto count = static_cast<int64_t>(sequences), at = static_cast<int64_t>(i);
    widest[i].tokens.assign(static_cast<size_t>(tokens * (at + 1) / count - tokens * at / count), 0);
    set_mask(widest[i]);
    batch.push_back(&widest[i]);
  }
  trainer.step(batch, objective, 0);
  return trainer.peak();
}

}  // namespace

std::optional<PeakBytes> MemoryPlan::grow_to_fit(Context& context, const Model& model, const TrainerConfig& config,
                                                 const Objective& objective, const StepPlan& plan) {
  if (context.kind() == DeviceKind::meta) return std::nullopt;
  int64_t tokens = 0;
  size_t sequences = 0;
  for (const PlannedMicroBatch& micro : plan.micro_batches) {
    tokens = std::max(tokens, micro.num_tokens);
    sequences = std::max(sequences, micro.end - micro.begin);
  }
  if (tokens <= tokens_) return std::nullopt;
  // The quarter leaves space for larger steps, so that few of them measure again.
  if (tokens_ > 0) tokens = std::max(tokens, std::min(config.micro_batch_tokens, tokens + tokens / 4));
  tokens_ = tokens;
  return count_step(context, model, config, objective, sequences, tokens);
}

}  // namespace hone
