#pragma once
// Trainer: pretraining, SFT, DPO, PPO and GRPO are this call with another objective.
#include <filesystem>
#include <memory>
#include <span>

#include "core/config/choice.h"
#include "model/forward.h"
#include "model/token_logprobs.h"
#include "train/critic.h"
#include "train/memory_plan.h"
#include "train/objective.h"
#include "train/optim/optimizer.h"
#include "train/phase_timer.h"

namespace hone {

struct TrainerConfig {
  int64_t micro_batch_tokens =
      8192;  // packed tokens of one forward and backward pass; a longer sample is a micro-batch of its own
  double max_grad_norm = 1;  // 0 = no clip
  double z_loss = 0;
  std::string recompute = "none";  // none | selective | full
  Choice<OptimizerSettings> optimizer{"adamw"};
  CriticConfig critic;     // the stage's to offer as keys, where objectives ask for a critic
  double temperature = 1;  // of the log-probs an objective sees: the sampling temperature in RL, 1 otherwise
  double neftune_noise_alpha =
      0;  // uniform noise on embeddings (kernels/elementwise/noise.h), of noise_seed and the sample's place in the run
  uint64_t noise_seed = 0;
  void fields(Fields& f);           // the optimizer's own keys included
  Recompute recomputation() const;  // as recompute names it
};

struct StepReport {
  double loss = 0, grad_norm = 0,
         learning_rate = 0;  // loss: the objective's, without the z-loss; grad_norm: before the clip
  int64_t num_tokens = 0, num_trained_tokens = 0, num_sequences = 0;
  double seconds = 0, sampling_seconds = 0;  // sampling: of the samples, the caller's to fill in
  StepTimes times;                           // on the device; the optimizer's are of the update before this step
  Metrics metrics;                           // the objective's, as means over the step
};

// Bytes a trainer holds besides the model's weights and gradients.
struct TrainerMemory {
  int64_t optimizer = 0, activations = 0;  // the critic's too
  int64_t critic = 0;                      // its weights and gradients
};

// Owns optimizer states, tape and staging; the model stays the caller's. One thread. State: optimizer, critic, the
// number of steps done.
class Trainer : public Stateful {
 public:
  Trainer(Context& context, Model& model, TrainerConfig config);
  ~Trainer() override;

  // One optimizer step over the samples. Members of a group must be adjacent if needs().unit is pair; a micro-batch
  // never splits a pair. A sample longer than micro_batch_tokens is a micro-batch of its own. One longer than the
  // model's positions is an Error that names it; so is a loss or gradient norm that is not finite. An exception leaves
  // weights and optimizer as before the step unless steps_done() has moved. Samples with has_no_gradient() skip the
  // backward pass; if the objective measures entropy, a forward pass measures them. The gradients stay in the
  // model until the next step. The step waits for the device once for the gradient norm and, unless the loss is
  // linear in logp, once for each micro-batch. The update may still be queued when the call returns.
  StepReport step(std::span<const Sample* const> samples, const Objective& objective, double learning_rate);

  // The file for the samples of a step whose loss or gradient is not finite (JSON Lines). Empty: none is written.
  void dump_to(std::filesystem::path path);

  // The critic's values of each token of the samples, from the hidden state of the token before it; 0 where the mask is
  // 0. The critic is made on first use.
  std::vector<std::vector<float>> values(std::span<const Sample* const> samples);
  // The weight of its head: D numbers, the score.weight of a reward model.
  std::vector<float> value_head();
  void set_value_head(std::span<const float> weight);

  // Optimizer updates, including one that an exception interrupted.
  int64_t steps_done() const;
  // As the steps so far have made it.
  TrainerMemory memory() const;
  // Of the steps so far, in the trainer and in its context's scratch memory.
  PeakBytes peak() const;
  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
