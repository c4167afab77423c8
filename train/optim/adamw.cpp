// The optimizer "adamw" (Loshchilov and Hutter 2019): Adam with decoupled weight decay.
#include "train/optim/adamw.h"

#include <cmath>

#include "kernels/optimizer/optimizer.h"
#include "train/optim/elementwise.h"

namespace hone {

void adam_fields(Fields& f, AdamwSettings& settings) {
  f("adam_beta1", settings.beta1, "decay rate of the gradient's running mean");
  f("adam_beta2", settings.beta2, "decay rate of the squared gradient's running mean");
  f("adam_epsilon", settings.epsilon, "added to the denominator");
  f.require("adam_beta1", settings.beta1 >= 0 && settings.beta1 < 1, "adam_beta1 must be in [0, 1)");
  f.require("adam_beta2", settings.beta2 >= 0 && settings.beta2 < 1, "adam_beta2 must be in [0, 1)");
  f.require("adam_epsilon", settings.epsilon > 0, "adam_epsilon must be above 0");
}

void moments_field(Fields& f, std::string& moments, const char* of) {
  f("moments", moments,
    concat("f32 | bf16: dtype of ", of, "; bf16 takes half the memory and is rounded stochastically").c_str());
  f.require("moments", moments == "f32" || moments == "bf16", "moments must be f32 or bf16");
}

void AdamwSettings::fields(Fields& f) {
  adam_fields(f, *this);
  f("weight_decay", weight_decay, "decoupled weight decay of matrices; norms and biases do not decay; 0 = none");
  moments_field(f, moments, "both running means");
  f.require("weight_decay", weight_decay >= 0, "weight_decay must not be negative");
}

namespace {

class Adamw : public ElementwiseOptimizer {
 public:
  explicit Adamw(const AdamwSettings& settings) : settings_(settings) {}

 protected:
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  DType state_dtype() const override { return settings_.moments == "bf16" ? DType::bf16 : DType::f32; }
  double weight_decay() const override { return settings_.weight_decay; }
  void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states,
                    const RangeStep& step) const override {
    const auto steps = static_cast<double>(step.number);
    adamw_update(context, {.range = range,
                           .m = states[0],
                           .v = states[1],
                           .step = {.learning_rate = static_cast<float>(step.learning_rate),
                                    .beta1 = static_cast<float>(settings_.beta1),
                                    .beta2 = static_cast<float>(settings_.beta2),
                                    .eps = static_cast<float>(settings_.epsilon),
                                    .weight_decay = static_cast<float>(step.weight_decay),
                                    .correction1 = static_cast<float>(1 - std::pow(settings_.beta1, steps)),
                                    .correction2 = static_cast<float>(1 - std::pow(settings_.beta2, steps)),
                                    .stream = step.stream}});
  }

 private:
  const AdamwSettings settings_;
};

}  // namespace

std::unique_ptr<Optimizer> AdamwSettings::make() const { return std::make_unique<Adamw>(*this); }

namespace {

[[maybe_unused]] const bool added =
    optimizers().add("adamw", [] { return std::unique_ptr<OptimizerSettings>(new AdamwSettings); });

}  // namespace
}  // namespace hone
