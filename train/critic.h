#pragma once
// Critic: estimates the value of a state with a linear head on a final hidden state. The hidden state is the policy's
// (shared trunk) or that of a second model (separate trunk).
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "model/forward.h"
#include "train/param_update.h"
#include "train/phase_timer.h"

namespace hone {

class StepExchange;  // train/step_exchange.h

struct CriticConfig {
  std::string trunk = "shared";
  std::string path;  // model folder of a separate trunk; empty: a copy of the policy, made with the critic
  double learning_rate_factor = 1;
  void fields(Fields& f);
  bool separate() const { return trunk == "separate"; }
};

// Throws an Error if the folder of a separate trunk is no model with at least `vocab_size` entries.
void check_critic(const CriticConfig& config, int64_t vocab_size);

// The head is [1, D] without a bias, as in Hugging Face's sequence classifiers (score.weight), in f32 for every dtype
// of the trunk. It starts at zero, so all values are 0 before training, unless the folder of a separate trunk has a
// head. A critic owns its parameters and their optimizer. With a shared trunk the gradient of the value is added to the
// policy's. A separate trunk is a second model with its own gradient norm and clip. One thread.
class Critic : public Stateful {
 public:
  // ranks: as the trainer's; piece: elements of a piece of the gradient norm. phases: of a step of several ranks; null:
  // its exchanges are not timed.
  Critic(Context& context, Model& policy, const CriticConfig& config, Recompute recompute,
         std::unique_ptr<Optimizer> optimizer, StepExchange& ranks, int64_t piece = norm_piece,
         PhaseTimer* phases = nullptr);

  bool separate() const { return trunk_ != nullptr; }

  // Writes value [R, 1] for the token rows. hidden [R, D]: the policy's hidden state of these rows. Only a shared
  // trunk reads it.
  void forward(Tensor value, const Batch& batch, Tensor rows, Tensor hidden);
  // Backward of the last forward. dvalue: [R, 1]. Adds to the parameters' gradients and, with a shared trunk, to
  // dhidden [R, D].
  void backward(Tensor dhidden, Tensor dvalue, Tensor hidden);
  // Call the hooks of forward(), or of backward(), and compute nothing.
  void skip_forward();
  void skip_backward();
  // Writes value [R, 1] without a tape. Needs a ScratchScope of the caller.
  void score(Tensor value, const Batch& batch, Tensor rows);
  void skip_score() { skip_infer(context_, scored_model()); }  // takes part in a pass of other ranks

  // Gradients and optimizer of the trunk, if it is separate, and the head.
  ParamUpdate& params() { return *update_; }
  void update(const GradNorm& norm, int64_t step, double learning_rate);

  // The weight of the head: D numbers.
  std::vector<float> value_head() const;
  void set_value_head(std::span<const float> weight);

  // Model's, of a separate trunk.
  void gather_values();
  void release_values();
  std::vector<NamedTensor> values() const;  // weights on the device, by name; after gather_values()

  // Bytes. weight_bytes: weights and gradients. state_bytes: optimizer states. peak_bytes and capacity_bytes:
  // activations of a separate trunk.
  int64_t weight_bytes() const;
  int64_t state_bytes() const { return update_->state_bytes(); }
  size_t peak_bytes() const { return trunk_ ? trunk_->pass->peak_bytes() : 0; }
  size_t capacity_bytes() const { return trunk_ ? trunk_->pass->capacity_bytes() : 0; }
  void reserve(size_t bytes);
  // Frees the activations. The device must have done all passes.
  void free_activations();

  void save_state(StateSection& section) const override;  // after gather_values()
  void load_state(const StateSection& section) override;

 private:
  struct Trunk {
    std::unique_ptr<Model> model;
    std::unique_ptr<TrainingPass> pass = nullptr;
    Tensor hidden{};  // of the last forward
  };
  UnitHooks& hooks() { return timed_ ? *timed_ : static_cast<UnitHooks&>(update_->gradients()); }
  Model& scored_model() { return trunk_ ? *trunk_->model : policy_; }
  // x if it is f32, else an f32 copy in scratch.
  Tensor in_f32(Tensor x);
  void apply_head(Tensor value, Tensor hidden);

  Context& context_;
  Model& policy_;
  double learning_rate_factor_;
  std::unique_ptr<Trunk> trunk_;
  Buffer bytes_;
  Param head_;
  size_t head_unit_ = 0;  // in the list of units: the last
  const StepExchange& ranks_;
  std::unique_ptr<ParamUpdate> update_;
  std::optional<TimedHooks> timed_;  // of several ranks
  // Of values(); a saved section refers to them until the next save_state().
  mutable std::vector<std::vector<std::byte>> host_copies_;
};

}  // namespace hone
