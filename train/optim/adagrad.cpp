// The optimizer "adagrad" (Duchi et al. 2011), with PyTorch's settings.
#include "kernels/optimizer/optimizer.h"
#include "train/optim/elementwise.h"

namespace hone {
namespace {

struct AdagradSettings : OptimizerSettings {
  double lr_decay = 0, initial_accumulator_value = 0, eps = 1e-10, weight_decay = 0;
  void fields(Fields& f) override {
    f("lr_decay", lr_decay, "the learning rate of step t is divided by 1 + (t - 1) * lr_decay; 0 = it is not");
    f("initial_accumulator_value", initial_accumulator_value, "sum of squared gradients before the first step");
    f("eps", eps, "added to the denominator");
    f("weight_decay", weight_decay,
      "added to the gradient as weight_decay * value; norms and biases do not decay; 0 = none");
    f.require("lr_decay", lr_decay >= 0, "lr_decay must not be negative");
    f.require("initial_accumulator_value", initial_accumulator_value >= 0,
              "initial_accumulator_value must not be negative");
    f.require("eps", eps > 0, "eps must be above 0");
    f.require("weight_decay", weight_decay >= 0, "weight_decay must not be negative");
  }
  std::unique_ptr<Optimizer> make() const override;
};

class Adagrad : public ElementwiseOptimizer {
 public:
  explicit Adagrad(const AdagradSettings& settings) : settings_(settings) {}
  double learning_rate_of(int64_t step, double scheduled) const override {
    return scheduled / (1 + static_cast<double>(step - 1) * settings_.lr_decay);
  }

 protected:
  std::vector<std::string> state_names() const override { return {"sum"}; }
  double weight_decay() const override { return settings_.weight_decay; }
  void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states,
                    const RangeStep& step) const override {
    const double rate = learning_rate_of(step.number, step.learning_rate);
    adagrad_update(context, {.range = range,
                             .sum = states[0],
                             .step = {.learning_rate = static_cast<float>(rate),
                                      .eps = static_cast<float>(settings_.eps),
                                      .weight_decay = static_cast<float>(step.weight_decay),
                                      .initial = static_cast<float>(settings_.initial_accumulator_value),
                                      .first = step.number == 1}});
  }

 private:
  const AdagradSettings settings_;
};

std::unique_ptr<Optimizer> AdagradSettings::make() const { return std::make_unique<Adagrad>(*this); }

[[maybe_unused]] const bool added =
    optimizers().add("adagrad", [] { return std::unique_ptr<OptimizerSettings>(new AdagradSettings); });

}  // namespace
}  // namespace hone
