// The optimizer "rmsprop", with PyTorch's settings.
#include "kernels/optimizer/optimizer.h"
#include "train/optim/elementwise.h"

namespace hone {
namespace {

struct RmspropSettings : OptimizerSettings {
  double alpha = 0.99, eps = 1e-8, weight_decay = 0;
  void fields(Fields& f) override {
    f("alpha", alpha, "decay rate of the squared gradient's running mean");
    f("eps", eps, "added to the denominator");
    f("weight_decay", weight_decay,
      "added to the gradient as weight_decay * value; norms and biases do not decay; 0 = none");
    f.require("alpha", alpha >= 0 && alpha < 1, "alpha must be in [0, 1)");
    f.require("eps", eps > 0, "eps must be above 0");
    f.require("weight_decay", weight_decay >= 0, "weight_decay must not be negative");
  }
  std::unique_ptr<Optimizer> make() const override;
};

class Rmsprop : public ElementwiseOptimizer {
 public:
  explicit Rmsprop(const RmspropSettings& settings) : settings_(settings) {}

 protected:
  std::vector<std::string> state_names() const override { return {"square_avg"}; }
  double weight_decay() const override { return settings_.weight_decay; }
  void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states,
                    const RangeStep& step) const override {
    rmsprop_update(context, {.range = range,
                             .square = states[0],
                             .step = {.learning_rate = static_cast<float>(step.learning_rate),
                                      .alpha = static_cast<float>(settings_.alpha),
                                      .eps = static_cast<float>(settings_.eps),
                                      .weight_decay = static_cast<float>(step.weight_decay)}});
  }

 private:
  const RmspropSettings settings_;
};

std::unique_ptr<Optimizer> RmspropSettings::make() const { return std::make_unique<Rmsprop>(*this); }

[[maybe_unused]] const bool added =
    optimizers().add("rmsprop", [] { return std::unique_ptr<OptimizerSettings>(new RmspropSettings); });

}  // namespace
}  // namespace hone
