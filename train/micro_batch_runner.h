#pragma once
// MicroBatchRunner: a micro-batch through the model and its head to the objective, and back. Gradients are added to
// those of the model and of the critic.
#include "kernels/elementwise/noise.h"
#include "model/forward.h"
#include "train/critic.h"
#include "train/memory_plan.h"
#include "train/micro_batch.h"
#include "train/objective.h"
#include "train/phase_timer.h"
#include "train/trainer.h"

namespace hone {

// Copies numbers to the host without waiting.
class HostFetch {
 public:
  explicit HostFetch(Context& context)
      : context_(context), arena_(context.device(), size_t{1} << 16, MemoryKind::pinned) {}
  // Queues a copy, flattened. It is valid from the next synchronize() until clear().
  Tensor fetch(Tensor values) {
    const Tensor out = arena_.take(values.dtype, {values.size()});
    context_.copy_without_wait(out, values.view({values.size()}));
    return out;
  }
  void clear() { arena_.release({}); }

 private:
  Context& context_;
  Arena arena_;
};

// The place of a micro-batch in a run. With the seeds it determines the random numbers of noise and dropout.
struct MicroBatchPosition {
  int64_t step = 0, first_sample = 0, first_token = 0;  // steps before it; indices within the step
};

// Owns the memory of tape and columns and keeps it from one micro-batch to the next. One thread. On the meta device
// log-probs and losses are 0.
class MicroBatchRunner {
 public:
  // Everything but the config is the caller's and must outlive this object. Queued work is marked in `phases`.
  MicroBatchRunner(Context& context, Model& model, const TrainerConfig& config, PhaseTimer& phases);

  // For an objective whose loss is linear in logp: its gradient is known before the log-probs, so nothing waits. Writes
  // logp [R] f32 on the device, R being the number of rows. evaluate() gives the loss once staging.logp is read from
  // it.
  void queue_static_grad(MicroBatchData& staging, const Objective& objective, double scale,
                         const MicroBatchPosition& place, Tensor logp);
  // For any objective; waits for the log-probs. `critic` may be null if the objective needs none. Returns the loss; if
  // it is not finite, there was no backward pass.
  double run(MicroBatchData& staging, const Objective& objective, double scale, const MicroBatchPosition& place,
             Critic* critic, MetricSums& metrics);
  // The objective's loss of the micro-batch's columns. Writes its gradient into `staging`.
  double evaluate(MicroBatchData& staging, const Objective& objective, double scale, MetricSums& metrics) const;
  // Adds the objective's metrics, from a forward pass without a backward pass. Waits.
  void measure(MicroBatchData& staging, const Objective& objective, double scale, MetricSums& metrics);
  // The critic's values of the micro-batch's tokens (0 where the mask is 0). Waits.
  std::vector<float> values(const MicroBatchData& staging, Critic& critic);
  // Copies fetched numbers of rows to the entries of a column.
  void read_rows(const MicroBatchData& staging, Tensor rows, std::vector<float>& column) const;

  // Peak bytes of tape and columns; allocates that much; allocated bytes.
  PeakBytes peak() const { return {.tape = pass_.peak_bytes(), .columns = arena_.peak_bytes()}; }
  void reserve(const PeakBytes& peak);
  size_t capacity_bytes() const { return pass_.capacity_bytes() + arena_.capacity_bytes(); }

 private:
  // A micro-batch on the device: the batch, the rows that lm_head reads, and their targets.
  struct Packed {
    Batch batch;
    Tensor rows, targets;
  };
  Packed pack(const MicroBatchData& staging);
  Tensor forward(const Packed& packed, const MicroBatchPosition& place);
  Tensor dhidden_for(Tensor rows) { return arena_.take(model_.dtype(), {rows.size(), model_.shape().hidden_size}); }
  // The entries of a column at the rows that lm_head reads, on the device.
  Tensor rows_of(const MicroBatchData& staging, std::span<const float> column);
  // lm_head, objective, and the backward of lm_head into dhidden. Returns the loss.
  double run_lm_head(MicroBatchData& staging, const Objective& objective, double scale, Critic* critic,
                     MetricSums& metrics, const Packed& packed, Tensor hidden, Tensor dhidden);
  bool is_dry_run() const { return context_.kind() == DeviceKind::meta; }

  Context& context_;
  Model& model_;
  PhaseTimer& phases_;
  TrainingPass pass_;
  Arena arena_;  // of one micro-batch
  HostFetch host_;
  float z_loss_, inv_temperature_;
  EmbeddingNoise noise_;
  std::vector<float> row_values_;
};

}  // namespace hone
