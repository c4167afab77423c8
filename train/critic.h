#pragma once
// Critic: estimates the value of a state with a linear head on a final hidden state, that of the policy (shared trunk)
// or of a model of its own (separate trunk).
#include <memory>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "model/forward.h"
#include "train/optim/optimizer.h"

namespace hone {

struct CriticConfig {
  std::string trunk = "shared";
  std::string path;  // of a separate trunk; empty: the policy at the time the critic is made
  double learning_rate_factor = 1;
  void fields(Fields& f);
  bool separate() const { return trunk == "separate"; }
};

// The head is [1, D] without a bias, as in Hugging Face's sequence classifiers (score.weight), in f32 for every dtype
// of the trunk. It starts at zero, so that all values are 0 before training, unless the folder of a separate trunk has
// one. A critic owns its parameters and their optimizer. With a shared trunk the gradient of the value is added to the
// policy's. A separate trunk is a second model with its own gradient norm and clip.
class Critic : public Stateful {
 public:
  Critic(Context& context, Model& policy, const CriticConfig& config, Recompute recompute,
         std::unique_ptr<Optimizer> optimizer);

  bool separate() const { return trunk_ != nullptr; }

  // Writes value [R, 1] of the token rows. hidden [R, D]: the policy's at these rows; a shared trunk reads it.
  void forward(Tensor value, const Batch& batch, Tensor rows, Tensor hidden);
  // Backward of the last forward. dvalue: [R, 1]. Adds to the parameters' gradients and, with a shared trunk, to
  // dhidden [R, D].
  void backward(Tensor dhidden, Tensor dvalue, Tensor hidden);
  // Writes value [R, 1] without a tape; in the caller's ScratchScope.
  void score(Tensor value, const Batch& batch, Tensor rows);

  void zero_grad();
  void add_squares(Tensor sum) { optimizer_->add_squares(context_, sum); }
  void update(Tensor clip, int64_t step, double learning_rate);

  // The weight of the head: D numbers.
  std::vector<float> value_head() const;
  void set_value_head(std::span<const float> weight);

  // Bytes: weights with gradients, the optimizer's states, a trunk's activations.
  int64_t weight_bytes() const;
  int64_t state_bytes() const { return optimizer_->state_bytes(); }
  size_t peak_bytes() const { return trunk_ ? trunk_->pass.peak_bytes() : 0; }
  size_t capacity_bytes() const { return trunk_ ? trunk_->pass.capacity_bytes() : 0; }
  void reserve(size_t bytes);

  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  struct Trunk {
    Trunk(Context& context, std::unique_ptr<Model> made, Recompute recompute)
        : model(std::move(made)), pass(context, *model, recompute) {}
    std::unique_ptr<Model> model;
    TrainingPass pass;
    Tensor hidden;  // of the last forward
  };
  // x itself, or a copy in scratch.
  Tensor in_f32(Tensor x);
  void apply_head(Tensor value, Tensor hidden);
  std::vector<NamedTensor> values() const;  // on the device, by name

  Context& context_;
  Model& policy_;
  double learning_rate_factor_;
  std::unique_ptr<Trunk> trunk_;
  Buffer bytes_;
  Param head_;
  std::unique_ptr<Optimizer> optimizer_;
  mutable std::vector<std::vector<std::byte>> host_copies_;  // of the values, while they are saved
};

}  // namespace hone
