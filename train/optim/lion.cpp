// The optimizer "lion" (Chen et al. 2023): the sign of a mix of momentum and gradient, with decoupled weight decay.
#include "kernels/optimizer/optimizer.h"
#include "train/optim/adamw.h"
#include "train/optim/elementwise.h"

namespace hone {
namespace {

struct LionSettings : OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  std::string moments = "f32";
  void fields(Fields& f) override {
    f("lion_beta1", beta1, "share of the running mean in the mix whose sign is the update");
    f("lion_beta2", beta2, "decay rate of the gradient's running mean");
    f("weight_decay", weight_decay,
      "decoupled weight decay of matrices; norms and biases do not decay; 0 = none. With a learning rate 3 to 10 times "
      "smaller than adamw's, the same decay needs a factor 3 to 10 times larger");
    moments_field(f, moments, "the running mean");
    f.require("lion_beta1", beta1 >= 0 && beta1 < 1, "lion_beta1 must be in [0, 1)");
    f.require("lion_beta2", beta2 >= 0 && beta2 < 1, "lion_beta2 must be in [0, 1)");
    f.require("weight_decay", weight_decay >= 0, "weight_decay must not be negative");
  }
  std::unique_ptr<Optimizer> make() const override;
};

class Lion : public ElementwiseOptimizer {
 public:
  explicit Lion(const LionSettings& settings) : settings_(settings) {}

 protected:
  std::vector<std::string> state_names() const override { return {"exp_avg"}; }
  DType state_dtype() const override { return settings_.moments == "bf16" ? DType::bf16 : DType::f32; }
  double weight_decay() const override { return settings_.weight_decay; }
  void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states,
                    const RangeStep& step) const override {
    lion_update(context, {.range = range,
                          .m = states[0],
                          .step = {.learning_rate = static_cast<float>(step.learning_rate),
                                   .beta1 = static_cast<float>(settings_.beta1),
                                   .beta2 = static_cast<float>(settings_.beta2),
                                   .weight_decay = static_cast<float>(step.weight_decay),
                                   .stream = step.stream}});
  }

 private:
  const LionSettings settings_;
};

std::unique_ptr<Optimizer> LionSettings::make() const { return std::make_unique<Lion>(*this); }

[[maybe_unused]] const bool added =
    optimizers().add("lion", [] { return std::unique_ptr<OptimizerSettings>(new LionSettings); });

}  // namespace
}  // namespace hone
