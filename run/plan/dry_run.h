#pragma once
// Dry runs of a recipe's stages on the meta device: the steps that they take, and one rank of a layout that takes them
// alone. run/stage_memory.h measures its memory, run/rank_plan.h its work and its exchanges.
#include <memory>
#include <span>
#include <vector>

#include "core/comm/counting_group.h"
#include "model/model.h"
#include "run/recipe/recipe.h"
#include "train/stage.h"
#include "train/step_exchange.h"
#include "train/step_plan.h"
#include "train/trainer.h"

namespace hone {

// A stage that trains, and what its largest step is.
struct PlannedStage {
  size_t index = 0;  // in the recipe
  PlannedStep step;
  ModelShape shape;
  int64_t length = 0;    // tokens of the longest sample that the model takes
  bool adapted = false;  // an earlier stage trained adapters, so the reference keeps those
};
// The steps point into the recipe's stages.
std::vector<PlannedStage> planned_stages(const Recipe& recipe);

// How a run is divided: [parallel] of a recipe, on a number of ranks.
struct RankLayout {
  int ranks = 1;
  int64_t zero = 2, micro_batch_multiple = 1;
};
RankLayout layout_of(const Recipe& recipe, size_t ranks);

// One rank of a layout with a model of a stage, on the meta device, alone. Its exchanges are counted.
class DryRank {
 public:
  DryRank(const Recipe& recipe, const PlannedStage& planned, const RankLayout& layout, int rank);

  Context& context() { return context_; }
  Model& model() { return *model_; }
  StepExchange* exchange() { return exchange_.get(); }  // null: the only rank
  const ExchangeCounts& counts() const { return group_.counts(); }

 private:
  std::unique_ptr<Device> device_;
  Context context_;
  CountingGroup group_;
  std::unique_ptr<StepExchange> exchange_;
  std::unique_ptr<Model> model_;
};

// A sample with every column that the objective may read. The meta device does not read the numbers.
Sample dry_sample(const Objective& objective, int64_t length);

// The plan of an optimizer update whose samples are all as long as the longest.
struct LongestUpdate {
  StepPlan plan;         // its samples are one Sample, which does not exist any more
  double repeats = 1;    // above 1: the samples of the update, as a multiple of those of the plan
  int64_t most_samples;  // of a micro-batch
};
LongestUpdate plan_longest(const PlannedStage& planned, const RankLayout& layout, Model& model);

}  // namespace hone
