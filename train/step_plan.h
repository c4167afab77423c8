#pragma once
// StepPlan: how an optimizer step is cut into micro-batches. It is a function of the samples and the settings, computed
// on the host, so that every rank makes the same plan.
#include <span>
#include <vector>

#include "model/model.h"
#include "train/micro_batch.h"
#include "train/objective.h"

namespace hone {

struct TrainerConfig;

// FLOPs of training on a sample of L tokens: L * (per_token + per_context * L).
struct StepCost {
  double per_token = 0, per_context = 0;
  double flops(int64_t length) const {
    const auto tokens = static_cast<double>(length);
    return tokens * (per_token + per_context * tokens);
  }
};
StepCost cost_of(Model& model);

// A micro-batch of a plan, and what precedes it in the step.
struct PlannedMicroBatch : MicroBatch {
  int64_t num_tokens = 0, num_rows = 0;  // rows: tokens that are trained on
  int64_t first_token = 0, first_row = 0;
  // Something is trained on. Other micro-batches have no forward or backward pass.
  bool active() const { return num_rows > 0; }
};

struct StepPlan {
  // Samples with a gradient, in the order of the micro-batches, and their micro-batches.
  std::vector<const Sample*> samples;
  std::vector<PlannedMicroBatch> micro_batches;
  // Samples without a gradient that the objective's metrics count (Objective::has_no_gradient, Needs::entropy).
  std::vector<const Sample*> idle;
  std::vector<MicroBatch> idle_micro_batches;
  double scale = 1;                         // TokenBatch::scale
  int64_t num_tokens = 0, num_trained = 0;  // of all samples; of `samples`
  double flops = 0;
  uint64_t samples_digest = 0;  // StepReport's

  size_t num_active() const;
  std::span<const Sample* const> samples_of(const MicroBatch& micro_batch) const {
    return std::span(samples).subspan(micro_batch.begin, micro_batch.end - micro_batch.begin);
  }
};

// Throws an Error that names the sample that cannot be trained on. keep_all: no sample is idle (a dry run's have no
// numbers to look at).
StepPlan plan_step(std::span<const Sample* const> samples, const Objective& objective, const TrainerConfig& config,
                   const ModelShape& shape, const StepCost& cost, bool keep_all = false);

// Throws an Error if outside data made a sample that the model cannot read, or that has no mask. index: in messages.
void check_sample(const Sample& sample, size_t index, const ModelShape& shape);

}  // namespace hone
