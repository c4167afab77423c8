#pragma once
// Critic: what a state is worth, a linear head on the trunk's final hidden state (PPO). Its gradient flows on into the trunk.
#include <memory>
#include <vector>

#include "core/optim/optimizer.h"

namespace hone {

// Starts at zero, so that every value is 0 until it has learnt. It owns its parameters (f32, whatever the trunk's dtype) and their optimizer.
class Critic : public Stateful {
 public:
  Critic(Context& context, int64_t hidden_size, std::unique_ptr<Optimizer> optimizer);

  // value [R, 1] is written; hidden [R, D].
  void forward(Tensor value, Tensor hidden);
  // dhidden [R, D] and the parameters' gradients are added to; dvalue [R, 1].
  void backward(Tensor dhidden, Tensor dvalue, Tensor hidden);

  void zero_grad();
  Tensor flat_grads() const { return grads_; }
  void update(Tensor clip, int64_t step, double learning_rate);

  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 private:
  // x itself, or a copy in scratch.
  Tensor in_f32(Tensor x);

  Context& context_;
  Buffer bytes_;
  Tensor values_, grads_;  // [D + 1]: weight, then bias
  Param weight_, bias_;
  std::unique_ptr<Optimizer> optimizer_;
  mutable std::vector<float> host_copy_;  // of the values, while they are saved
};

}  // namespace hone
