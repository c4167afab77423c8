// The optimizer "sgd": gradient descent with momentum, with PyTorch's settings.
#include "kernels/optimizer/optimizer.h"
#include "train/optim/elementwise.h"

namespace hone {
namespace {

struct SgdSettings : OptimizerSettings {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  void fields(Fields& f) override {
    f("momentum", momentum, "decay rate of the gradient's running sum; 0 = no momentum");
    f("dampening", dampening, "1 - the weight of a new gradient in the running sum");
    f("nesterov", nesterov, "Nesterov momentum");
    f("weight_decay", weight_decay,
      "added to the gradient as weight_decay * value; norms and biases do not decay; 0 = none");
    f.require("momentum", momentum >= 0 && momentum < 1, "momentum must be in [0, 1)");
    f.require("nesterov", !nesterov || (momentum > 0 && dampening == 0), "nesterov needs momentum, and no dampening");
    f.require("weight_decay", weight_decay >= 0, "weight_decay must not be negative");
  }
  std::unique_ptr<Optimizer> make() const override;
};

class Sgd : public ElementwiseOptimizer {
 public:
  explicit Sgd(const SgdSettings& settings) : settings_(settings) {}

 protected:
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  double weight_decay() const override { return settings_.weight_decay; }
  void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states,
                    const RangeStep& step) const override {
    sgd_update(context, {.range = range,
                         .buffer = states[0],
                         .step = {.learning_rate = static_cast<float>(step.learning_rate),
                                  .momentum = static_cast<float>(settings_.momentum),
                                  .dampening = static_cast<float>(settings_.dampening),
                                  .weight_decay = static_cast<float>(step.weight_decay),
                                  .nesterov = settings_.nesterov,
                                  .first = step.number == 1}});
  }

 private:
  const SgdSettings settings_;
};

std::unique_ptr<Optimizer> SgdSettings::make() const { return std::make_unique<Sgd>(*this); }

[[maybe_unused]] const bool added =
    optimizers().add("sgd", [] { return std::unique_ptr<OptimizerSettings>(new SgdSettings); });

}  // namespace
}  // namespace hone
