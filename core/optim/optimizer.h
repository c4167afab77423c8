#pragma once
// Optimizers over lists of parameters; one file each. They own their states (f32, on the parameters' device).
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "core/fields.h"
#include "core/model/model.h"
#include "core/registry.h"

namespace hone {

// An optimizer is what it keeps for each parameter and how it updates one; the rest is shared. It joins with one line:
//   [[maybe_unused]] const bool added = optimizers().add("sgd", [] { return std::unique_ptr<Optimizer>(new Sgd); });
class Optimizer : public Stateful {
 public:
  // Settings, as recipe keys; names are Hugging Face's.
  virtual void fields(Fields&) {}
  // Another with the same settings and no states.
  virtual std::unique_ptr<Optimizer> fresh() const = 0;

  // Makes the states, zero, for the parameters that are trainable; they must outlive the optimizer. Once.
  void attach(Context& context, const std::vector<Param*>& params);
  // One update with the gradients as they are, each multiplied by clip [1] f32. step counts from 1.
  void update(Context& context, Tensor clip, int64_t step, double learning_rate);
  int64_t state_bytes() const;

  void save_state(StateSection& section) const override;
  void load_state(const StateSection& section) override;

 protected:
  // One array of a parameter's size for each name.
  virtual std::vector<std::string> state_names() const = 0;
  virtual void update_param(Context& context, const Param& param, std::span<const Tensor> states, Tensor clip, int64_t step,
                            double learning_rate) const = 0;

 private:
  struct Slot {
    Param* param;
    std::vector<Tensor> states;  // flat, in state_names() order
  };
  std::string state_name(const Slot& slot, size_t state) const;

  Context* context_ = nullptr;
  Buffer bytes_;
  std::vector<Slot> slots_;
  mutable std::vector<float> host_copy_;  // of the states, while they are saved
};

using OptimizerFactory = std::unique_ptr<Optimizer> (*)();
Registry<OptimizerFactory>& optimizers();  // adamw, sgd, rmsprop

}  // namespace hone
