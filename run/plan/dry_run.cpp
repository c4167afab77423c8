#include "run/plan/dry_run.h"

#include <algorithm>
#include <optional>

#include "data/columns.h"
#include "run/recipe/start.h"
#include "train/parallel/zero.h"
#include "train/step_plan.h"

namespace hone {
namespace {

int64_t longest_sample(const ModelShape& shape, const PlannedStep& step) {
  return std::max<int64_t>(1, shape.max_positions > 0 ? std::min(step.length, shape.max_positions) : step.length);
}

Ranks ranks_of(CountingGroup& group) { return group.size() > 1 ? Ranks(group) : Ranks(); }

}  // namespace

std::vector<PlannedStage> planned_stages(const Recipe& recipe) {
  const std::unique_ptr<Model> model = start_model(recipe);
  std::vector<PlannedStage> out;
  bool adapted = starts_from_adapter(recipe);
  std::optional<Tokenizer> tokenizer = start_tokenizer(recipe);
  for (size_t i = 0; i < recipe.stage.size(); ++i) {
    const Stage& stage = *recipe.stage[i].stage;
    if (stage.vocab_size() > 0) tokenizer.reset();
    if (!stage.trains()) continue;
    PlannedStep step = stage.planned_step(model->shape(), tokenizer ? &*tokenizer : nullptr);
    const int64_t length = longest_sample(model->shape(), step);
    out.push_back({.index = i, .step = std::move(step), .shape = model->shape(), .length = length, .adapted = adapted});
    adapted = adapted || (stage.hands_model_on() && stage.trains_adapters() && start_lora(recipe).r > 0);
  }
  return out;
}

RankLayout layout_of(const Recipe& recipe, size_t ranks) {
  const int64_t multiple = recipe.parallel.micro_batch_multiple, count = static_cast<int64_t>(ranks);
  return {.ranks = static_cast<int>(ranks),
          .zero = recipe.parallel.zero,
          .micro_batch_multiple = multiple > 0 ? multiple : count};
}

DryRank::DryRank(const Recipe& recipe, const PlannedStage& planned, const RankLayout& layout, int rank)
    : device_(devices().at("meta")(0)),
      context_(*device_),
      group_(rank, layout.ranks),
      exchange_(make_exchange(ranks_of(group_), layout.zero)),
      model_(start_model(recipe)) {
  context_.plan_for(device_kind(recipe.device.kind));
  context_.set_numerics(numerics_of(recipe.numerics));
  const bool adapters = recipe.stage[planned.index].stage->trains_adapters();
  if (const LoraConfig lora = start_lora(recipe); lora.r > 0 && adapters) model_->add_lora(lora);
  // With several ranks the trainer gives gradients their memory.
  model_->allocate(context_, model_dtype(recipe.dtype, context_.target()), layout.ranks == 1);
}

Sample dry_sample(const Objective& objective, int64_t length) {
  const auto n = static_cast<size_t>(length);
  const Needs needs = objective.needs();
  Sample out;
  out.tokens.assign(n, 0);
  for (const std::vector<Column>* columns : {&needs.columns, &needs.optional})
    for (const Column column : *columns) out.columns.assign(column, column.size(1, n), 0);
  set_mask(out);
  return out;
}

LongestUpdate plan_longest(const PlannedStage& planned, const RankLayout& layout, Model& model) {
  constexpr int64_t most_planned = 1 << 14;  // more samples make more micro-batches of the same size
  const PlannedStep& step = planned.step;
  const int64_t unit = step.objective->needs().unit == LossUnit::pair ? 2 : 1,
                wanted = std::max<int64_t>(1, step.sequences / unit) * unit, count = std::min(wanted, most_planned);
  const Sample longest = dry_sample(*step.objective, planned.length);
  const std::vector<const Sample*> samples(static_cast<size_t>(count), &longest);
  TrainerConfig config = *step.trainer;
  config.micro_batch_multiple = layout.micro_batch_multiple;
  LongestUpdate out{.plan = plan_step(samples, *step.objective, config, model.shape(), cost_of(model), true),
                    .repeats = static_cast<double>(wanted) / static_cast<double>(count),
                    .most_samples = 0};
  for (const PlannedMicroBatch& micro : out.plan.micro_batches)
    out.most_samples = std::max(out.most_samples, static_cast<int64_t>(micro.end - micro.begin));
  return out;
}

}  // namespace hone
