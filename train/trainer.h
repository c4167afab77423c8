#pragma once
// Trainer: optimizer steps over samples under an objective. Pretraining, SFT, DPO, PPO and GRPO differ by the objective
// alone.
#include <filesystem>
#include <memory>
#include <span>

#include "core/config/choice.h"
#include "kernels/optimizer/optimizer.h"
#include "model/forward.h"
#include "model/token_logprobs.h"
#include "train/critic.h"
#include "train/memory_plan.h"
#include "train/objective.h"
#include "train/optim/optimizer.h"
#include "train/optim/param_groups.h"
#include "train/phase_timer.h"

namespace hone {

class StepExchange;  // train/step_exchange.h

struct TrainerConfig {
  // Packed tokens of one forward and backward pass. A longer sample is a micro-batch of its own.
  int64_t micro_batch_tokens = 8192;
  double max_grad_norm = 1;  // 0 = no clip
  double z_loss = 0;
  std::string recompute = "none";  // none | selective | full
  Choice<OptimizerSettings> optimizer{"adamw"};
  std::vector<ParamGroup> groups;  // of the policy's parameters; a critic has none
  // "previous": the optimizer starts with the state and the step count of the checkpoint that the stage starts from.
  std::string optimizer_from;
  CriticConfig critic;     // not in fields(): a stage adds these keys if its objectives need a critic
  double temperature = 1;  // of the log-probs that an objective sees: the sampling temperature in RL, else 1
  // Uniform noise on the embeddings (kernels/elementwise/noise.h), a function of noise_seed and the sample's position
  // in the run. 0 = none.
  double neftune_noise_alpha = 0;
  uint64_t noise_seed = 0;
  // The number of micro-batches of a step is a multiple of it (cut_micro_batches). It decides bits; the number of ranks
  // does not.
  int64_t micro_batch_multiple = 1;
  int64_t norm_piece = hone::norm_piece;  // elements of a piece of the gradient norm; tests use small ones
  void fields(Fields& f);                 // includes the optimizer's own keys
  Recompute recomputation() const;        // `recompute` as an enum
};

struct StepReport {
  // loss: the objective's, without the z-loss. grad_norm: before the clip.
  double loss = 0, grad_norm = 0, learning_rate = 0;
  int64_t num_tokens = 0, num_trained_tokens = 0, num_sequences = 0;
  uint64_t samples_digest = 0;  // of the samples' tokens and masks in order: ranks must have the same
  uint64_t weights_digest = 0;  // of some weights before the step (train/ranks/weight_probe.h); 0 with one rank
  double flops = 0;  // of forward and backward passes (ModelFlops::causal_train_flops_per_token); without a critic's
  double seconds = 0, sampling_seconds = 0;  // sampling_seconds: of the completions; the caller sets it
  StepTimes times;                           // on the device; optimizer: the update before this step
  Metrics metrics;                           // the objective's, means over the step
};

// Bytes that a trainer holds in addition to the model's weights and gradients.
struct TrainerMemory {
  int64_t optimizer = 0, activations = 0;  // including the critic's
  GradientBytes gradients;                 // of the policy
  int64_t critic = 0;                      // its weights and gradients, with the buffers of its gradients
};

// What a step updates. critic: the policy's weights, optimizer states and number of updates stay as they are. Its
// forward pass and metrics go on; its backward pass is not computed, and the gradient norm is the critic's.
enum class Updated : uint8_t { all, critic };

// Owns optimizer states, tape and staging memory. The caller owns the model, which must outlive the trainer. One
// thread. State: optimizer, critic, the number of steps done.
class Trainer : public Stateful {
 public:
  // ranks: the ranks that train the model together; it must outlive the trainer. Null: this is the only rank. With
  // several, the model may have been loaded without gradients, and loses those that it has (drop_gradient_memory).
  Trainer(Context& context, Model& model, TrainerConfig config, StepExchange* ranks = nullptr);
  ~Trainer() override;

  // One optimizer step over the samples. Members of a group must be adjacent if needs().unit is pair; a micro-batch
  // never splits a pair. A sample longer than micro_batch_tokens is a micro-batch of its own. A sample longer than
  // the model's positions is an Error that names it. A loss or gradient norm that is not finite is an Error, too. After
  // an exception weights and optimizer are as before the step, unless steps_done() has increased. Samples with
  // has_no_gradient() skip the backward pass; if the objective measures entropy, a forward pass measures them. The
  // gradients stay in the model until the next step. The step waits for the device once for the gradient norm and,
  // unless the loss is linear in logp, once for each micro-batch. The update may still be queued when the call returns.
  StepReport step(std::span<const Sample* const> samples, const Objective& objective, double learning_rate,
                  Updated updated = Updated::all);

  // Frees the memory of activations, a critic's too, for an engine that uses it between steps. The next step allocates
  // it again. Weights, gradients, optimizer states and the context's scratch memory stay. Waits for the device.
  void free_activations();

  // Sets the file for the samples of a step whose loss or gradient is not finite (JSON Lines). Empty: no file.
  void dump_to(std::filesystem::path path);

  // With ZeRO-3: gathers the values that a checkpoint contains, until the next step(): those of a model without
  // adapters, and of a critic's trunk. All ranks call it before save_state() and before the model is saved. Otherwise
  // it does nothing.
  void gather_saved_values();
  // The critic's values of each token of the samples, from the hidden state of the token before it; 0 where the mask is
  // 0. The critic is made on first use. All ranks call it, each with any samples. passes: with ZeRO-3 all ranks make as
  // many passes, the most that one of them needs.
  std::vector<std::vector<float>> values(std::span<const Sample* const> samples, size_t passes = 0);
  size_t count_value_passes(std::span<const Sample* const> samples) const;
  // The weight of the critic's head: D numbers, the score.weight of a reward model.
  std::vector<float> value_head();
  void set_value_head(std::span<const float> weight);

  // Optimizer updates, those of a critic alone too, including one that an exception interrupted.
  int64_t steps_done() const;
  // Memory after the steps so far.
  TrainerMemory memory() const;
  // Peak bytes of the steps so far, in the trainer and in its context's scratch memory.
  PeakBytes peak() const;
  // With several ranks a section has this rank's parts of the optimizer's states; rank 0's has a critic's weights, too.
  // load_state() takes the tensors of all ranks, saved by any number of them.
  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;
  // Goes on from another trainer's saved state: the policy's optimizer and the number of its updates. A critic starts
  // anew. Throws an Error that names what does not fit: the optimizer's kind, a parameter, its size or a dtype.
  void continue_from(const StateSection& section);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
