#include <cmath>

#include "kernels/optimizer/optimizer.h"
#include "train/optim/optimizer.h"

namespace hone {
namespace {

struct AdamwSettings : OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  std::string moments = "f32";
  void fields(Fields& f) override {
    f("adam_beta1", beta1, "decay of the gradient's mean");
    f("adam_beta2", beta2, "decay of the squared gradient's mean");
    f("adam_epsilon", epsilon, "added to the denominator");
    f("weight_decay", weight_decay, "of matrices; norms and biases do not decay");
    f("moments", moments,
      "f32 | bf16: what both means are kept in; bf16, rounded stochastically, takes half the memory");
    f.require("adam_beta1", beta1 >= 0 && beta1 < 1, "adam_beta1 must be in [0, 1)");
    f.require("adam_beta2", beta2 >= 0 && beta2 < 1, "adam_beta2 must be in [0, 1)");
    f.require("adam_epsilon", epsilon > 0, "adam_epsilon must be above 0");
    f.require("weight_decay", weight_decay >= 0, "weight_decay must not be negative");
    f.require("moments", moments == "f32" || moments == "bf16", "moments must be f32 or bf16");
  }
  std::unique_ptr<Optimizer> make() const override;
};

class Adamw : public Optimizer {
 public:
  explicit Adamw(const AdamwSettings& settings) : settings_(settings) {}

 protected:
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  DType state_dtype() const override { return settings_.moments == "bf16" ? DType::bf16 : DType::f32; }
  void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states, uint64_t stream,
                    int64_t step, double learning_rate) const override {
    const auto steps = static_cast<double>(step);
    adamw_update(context, {.range = range,
                           .m = states[0],
                           .v = states[1],
                           .step = {.learning_rate = static_cast<float>(learning_rate),
                                    .beta1 = static_cast<float>(settings_.beta1),
                                    .beta2 = static_cast<float>(settings_.beta2),
                                    .eps = static_cast<float>(settings_.epsilon),
                                    .weight_decay = static_cast<float>(settings_.weight_decay),
                                    .correction1 = static_cast<float>(1 - std::pow(settings_.beta1, steps)),
                                    .correction2 = static_cast<float>(1 - std::pow(settings_.beta2, steps)),
                                    .stream = stream}});
  }

 private:
  const AdamwSettings settings_;
};

std::unique_ptr<Optimizer> AdamwSettings::make() const { return std::make_unique<Adamw>(*this); }

[[maybe_unused]] const bool added =
    optimizers().add("adamw", [] { return std::unique_ptr<OptimizerSettings>(new AdamwSettings); });

}  // namespace
}  // namespace hone
