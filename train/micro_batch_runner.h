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
  // Queues a copy, flat: there after the next synchronize(), until clear().
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

// Where a micro-batch lies in a run: with the seeds it decides what noise and dropout draw.
struct MicroBatchPosition {
  int64_t step = 0, first_sample = 0, first_token = 0;  // steps before it; among the step's
};

// The memory of tape, columns and staging is its own and kept from one micro-batch to the next. One thread. On the meta
// device there are no numbers: log-probs and losses are 0.
class MicroBatchRunner {
 public:
  // All but the config are the caller's and must outlive it. What is queued is marked in `phases`.
  MicroBatchRunner(Context& context, Model& model, const TrainerConfig& config, PhaseTimer& phases);

  // Of a linear objective: its gradient is known before the log-probs are, so that nothing waits. logp [R] f32 on the
  // device, R the staging's rows, is written; the loss is evaluate()'s, once staging.logp has been read from there.
  void queue_static_grad(MicroBatchData& staging, const Objective& objective, double scale,
                         const MicroBatchPosition& place, Tensor logp);
  // Of any objective; waits for what the objective reads. `critic` only where the objective needs one. Returns the
  // loss; where that is not finite, nothing has gone backward.
  double run(MicroBatchData& staging, const Objective& objective, double scale, const MicroBatchPosition& place,
             Critic* critic, MetricSums& metrics);
  // The objective's loss of the staging's columns; its gradient is staged too.
  double evaluate(MicroBatchData& staging, const Objective& objective, double scale, MetricSums& metrics) const;
  // Adds the objective's metrics of the staging's columns, from a forward pass alone. Waits.
  void measure(MicroBatchData& staging, const Objective& objective, double scale, MetricSums& metrics);
  // The critic's values, as entries of the staging's tokens (0 where nothing is trained on). Waits.
  std::vector<float> values(const MicroBatchData& staging, Critic& critic);
  // Fetched numbers of rows into the entries of a column.
  void read_rows(const MicroBatchData& staging, Tensor rows, std::vector<float>& column) const;

  // Tape and columns at their fullest; room for so much; what is taken.
  PeakBytes peak() const { return {.tape = pass_.peak_bytes(), .columns = arena_.peak_bytes()}; }
  void reserve(const PeakBytes& peak);
  size_t capacity_bytes() const { return pass_.capacity_bytes() + arena_.capacity_bytes(); }

 private:
  // What is staged, on the device: its batch, the rows that the head reads and their targets.
  struct Packed {
    Batch batch;
    Tensor rows, targets;
  };
  Packed pack(const MicroBatchData& staging);
  Tensor forward(const Packed& packed, const MicroBatchPosition& place);
  Tensor dhidden_for(Tensor rows) { return arena_.take(model_.dtype(), {rows.size(), model_.shape().hidden_size}); }
  // A column's entries of the rows that the head reads, on the device.
  Tensor rows_of(const MicroBatchData& staging, std::span<const float> column);
  // Head, objective, and the head's backward into dhidden. Returns the loss.
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
