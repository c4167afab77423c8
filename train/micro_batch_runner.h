#pragma once
// MicroBatchRunner: runs a micro-batch through the model, lm_head and the objective, and back. It adds to the gradients
// of the model and of the critic.
#include "kernels/elementwise/noise.h"
#include "model/forward.h"
#include "train/critic.h"
#include "train/memory_plan.h"
#include "train/micro_batch.h"
#include "train/objective.h"
#include "train/phase_timer.h"
#include "train/trainer.h"

namespace hone {

class TeacherObjective;  // train/teacher.h

// Queues copies to pinned host memory without waiting.
class HostFetch {
 public:
  explicit HostFetch(Context& context)
      : context_(context), arena_(context.device(), size_t{1} << 16, MemoryKind::pinned) {}
  // Queues a copy of `values` and returns it as [N]. It is valid from the next synchronize() until clear().
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
  // step: steps done before it. first_sample, first_token: indices within the step.
  int64_t step = 0, first_sample = 0, first_token = 0;
  double token_weight = 0;  // 1 / (number of tokens of the step)
  Tensor aux_sums{};        // AuxLoss::sums of this micro-batch; empty if the model has none
};

// Owns the memory of tape and columns and keeps it from one micro-batch to the next. One thread. On the meta device
// log-probs and losses are 0.
class MicroBatchRunner {
 public:
  // All arguments but the config must outlive this object. Queued work is marked in `phases`. hooks: of the model's
  // passes; null: none.
  MicroBatchRunner(Context& context, Model& model, const TrainerConfig& config, PhaseTimer& phases,
                   UnitHooks* hooks = nullptr);

  // For an objective whose loss is linear in logp: its gradient is known before the log-probs, so the host does not
  // wait. Writes logp and, unless empty, hit (kernels/lm_head/logprob.h) [R] f32 on the device; R is the number of
  // rows. evaluate() computes the loss after read_rows() has copied logp to staging.logp.
  void queue_static_grad(MicroBatchData& staging, const Objective& objective, double scale,
                         const MicroBatchPosition& place, Tensor logp, Tensor hit);
  // For any objective; waits for the log-probs. `critic` may be null if the objective needs none. Returns the loss; if
  // it is not finite, the backward pass computes nothing.
  double run(MicroBatchData& staging, const Objective& objective, double scale, const MicroBatchPosition& place,
             Critic* critic, MetricSums& metrics);
  // False: run() computes no gradients of the model, only the critic's. With a critic alone.
  void compute_gradients(bool of_model) { computes_gradients_ = of_model; }
  // Returns the objective's loss of the micro-batch's columns and writes its gradient into `staging`.
  double evaluate(MicroBatchData& staging, const Objective& objective, double scale, MetricSums& metrics) const;
  // Calls the hooks of a micro-batch's passes and computes nothing: only other ranks have one in this round.
  void skip(const Objective& objective, Critic* critic);
  // Adds the objective's metrics after a forward pass without a backward pass. Waits for the device. skip_measure()
  // takes part in that pass of other ranks.
  void measure(MicroBatchData& staging, const Objective& objective, double scale, MetricSums& metrics);
  void skip_measure() { skip_infer(context_, model_); }
  // The critic's values of the micro-batch's tokens (0 where the mask is 0). Waits for the device.
  std::vector<float> values(const MicroBatchData& staging, Critic& critic);
  // Adds mean_token_accuracy of fetched hits.
  void add_token_accuracy(Tensor hits, MetricSums& metrics) const;
  // The same of a micro-batch; of pairs the chosen completions count.
  void add_token_accuracy(const MicroBatchData& staging, Tensor hits, const Needs& needs, MetricSums& metrics) const;
  // Copies fetched values of rows to the entries of a column.
  void read_rows(const MicroBatchData& staging, Tensor rows, std::vector<float>& column) const;

  // peak: peak bytes of tape and columns. reserve: allocates that much. capacity_bytes: allocated bytes.
  PeakBytes peak() const { return {.tape = pass_.peak_bytes(), .columns = arena_.peak_bytes()}; }
  void reserve(const PeakBytes& peak);
  size_t capacity_bytes() const { return pass_.capacity_bytes() + arena_.capacity_bytes(); }
  // Frees it. The device must have done all micro-batches.
  void free_memory() {
    pass_.free_memory();
    arena_.free();
  }

 private:
  // A micro-batch on the device: the batch, the rows that lm_head reads, and their targets.
  struct Packed {
    Batch batch;
    Tensor rows, targets;
  };
  Packed pack(const MicroBatchData& staging);
  Tensor forward(const MicroBatchData& staging, const Packed& packed, const MicroBatchPosition& place,
                 const Objective& objective, double scale);
  // Each token's share of the step's loss, for losses made inside layers.
  AuxLoss aux_loss(const MicroBatchData& staging, LossUnit unit, double scale, const MicroBatchPosition& place);
  Tensor dhidden_for(Tensor rows) { return arena_.take(model_.dtype(), {rows.size(), model_.shape().hidden_size}); }
  // The entries of a column at the rows that lm_head reads, on the device.
  Tensor rows_of(const MicroBatchData& staging, std::span<const float> column);
  // lm_head, objective, and the backward of lm_head into dhidden. Returns the loss.
  double run_lm_head(MicroBatchData& staging, const Objective& objective, double scale, Critic* critic,
                     MetricSums& metrics, const Packed& packed, Tensor hidden, Tensor dhidden);
  // The backward of logprob_forward into dhidden and the lm_head.
  void run_logprob_backward(const MicroBatchData& staging, const Packed& packed, Tensor hidden, Tensor lse,
                            Tensor entropy, Tensor dhidden);
  // The loss's term of the teacher (train/teacher.h). Adds its gradient to dhidden and to the lm_head.
  double add_teacher_term(const MicroBatchData& staging, const TeacherObjective& objective, double scale,
                          MetricSums& metrics, const Packed& packed, Tensor hidden, Tensor dhidden);
  // Calls the hooks of the backward passes in the order of run().
  void skip_backward(const Objective& objective, Critic* critic);
  bool is_dry_run() const { return context_.kind() == DeviceKind::meta; }

  Context& context_;
  Model& model_;
  PhaseTimer& phases_;
  TrainingPass pass_;
  Arena arena_;  // of one micro-batch
  HostFetch host_;
  float z_loss_, inv_temperature_;
  EmbeddingNoise noise_;
  bool computes_gradients_ = true;
  std::vector<float> row_values_, token_weights_, target_weights_;
};

}  // namespace hone
