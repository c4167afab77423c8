#include "train/step_plan.h"

#include <algorithm>
#include <bit>

#include "model/flops.h"
#include "train/trainer.h"

namespace hone {

StepCost cost_of(Model& model) {
  const double per_token = count_flops(model, 0).causal_train_flops_per_token;
  return {per_token, count_flops(model, 1).causal_train_flops_per_token - per_token};
}

void check_sample(const Sample& sample, size_t index, const ModelShape& shape) {
  const auto length = static_cast<int64_t>(sample.tokens.size());
  HONE_CHECK(shape.max_positions == 0 || length <= shape.max_positions, "trainer: sample ", index, " has ", length,
             " tokens, the model ", shape.max_positions, " positions");
  const std::span<const float> mask = sample.columns.find(columns::mask);
  HONE_CHECK(mask.size() == sample.tokens.size(), "trainer: sample ", index, " has ", length, " tokens and a mask of ",
             mask.size());
  HONE_CHECK(length == 0 || mask[0] == 0, "trainer: sample ", index,
             " trains on its first token, which nothing predicts");
  for (const int32_t id : sample.tokens)
    HONE_CHECK(id >= 0 && id < shape.vocab_size, "trainer: sample ", index, " has token ", id,
               ", the model's vocabulary has ", shape.vocab_size,
               " entries (does the tokenizer belong to another model?)");
}

static int64_t num_rows(const Sample& sample) {
  return std::ranges::count_if(sample.columns.find(columns::mask), [](float v) { return v != 0; });
}

// Adds the micro-batches of plan.samples, which `cut` are, with their counts.
static void add_micro_batches(StepPlan& plan, std::span<const MicroBatch> cut) {
  int64_t first_token = 0, first_row = 0;
  for (const MicroBatch& range : cut) {
    PlannedMicroBatch& micro = plan.micro_batches.emplace_back();
    micro.begin = range.begin;
    micro.end = range.end;
    micro.first_token = first_token;
    micro.first_row = first_row;
    for (const Sample* sample : plan.samples_of(range)) {
      micro.num_tokens += static_cast<int64_t>(sample->tokens.size());
      micro.num_rows += num_rows(*sample);
    }
    first_token += micro.num_tokens;
    first_row += micro.num_rows;
  }
  plan.num_trained = first_row;
}

size_t StepPlan::num_active() const {
  return static_cast<size_t>(
      std::ranges::count_if(micro_batches, [](const PlannedMicroBatch& micro) { return micro.active(); }));
}

// FNV-1a's step for each token and each number of the mask.
static void add_to_digest(uint64_t& digest, const Sample& sample) {
  const auto add = [&](uint64_t number) { digest = (digest ^ number) * 0x100000001b3u; };
  add(sample.tokens.size());
  for (const int32_t token : sample.tokens) add(static_cast<uint32_t>(token));
  for (const float weight : sample.columns.find(columns::mask)) add(std::bit_cast<uint32_t>(weight));
}

StepPlan plan_step(std::span<const Sample* const> samples, const Objective& objective, const TrainerConfig& config,
                   const ModelShape& shape, const StepCost& cost, bool keep_all) {
  HONE_CHECK(!samples.empty(), "trainer: a step needs at least one sample");
  const Needs needs = objective.needs();
  const bool may_skip = config.z_loss == 0 && !keep_all;
  StepPlan plan;
  double count = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = *samples[i];
    check_sample(sample, i, shape);
    count += count_of(needs.unit, sample.columns.find(columns::mask));
    const auto length = static_cast<int64_t>(sample.tokens.size());
    plan.num_tokens += length;
    add_to_digest(plan.samples_digest, sample);
    if (may_skip && objective.has_no_gradient(sample)) {
      if (needs.entropy && num_rows(sample) > 0) plan.idle.push_back(&sample);
      continue;
    }
    plan.samples.push_back(&sample);
    plan.flops += cost.flops(length);
  }
  plan.scale = scale_of(count);
  const CutConfig cut{.unit = needs.unit == LossUnit::pair ? size_t{2} : size_t{1},
                      .max_tokens = config.micro_batch_tokens,
                      .multiple = config.micro_batch_multiple,
                      .cost = [&](int64_t length) { return static_cast<int64_t>(cost.flops(length)); }};
  add_micro_batches(plan, cut_micro_batches(plan.samples, cut));
  make_micro_batches(plan.idle, 1, config.micro_batch_tokens, plan.idle_micro_batches);
  return plan;
}

}  // namespace hone
