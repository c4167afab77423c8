#include "kernels/optimizer/optimizer.h"
#include "train/optim/optimizer.h"

namespace hone {
namespace {

class Rmsprop : public Optimizer {
 public:
  void fields(Fields& f) override {
    f("alpha", alpha_, "decay of the squared gradient's mean");
    f("eps", eps_, "added to the denominator");
    f("weight_decay", weight_decay_, "added to the gradient as weight_decay * value; norms and biases do not decay");
    f.require("alpha", alpha_ >= 0 && alpha_ < 1, "alpha must be in [0, 1)");
    f.require("eps", eps_ > 0, "eps must be above 0");
    f.require("weight_decay", weight_decay_ >= 0, "weight_decay must not be negative");
  }
  std::unique_ptr<Optimizer> with_same_settings() const override {
    auto out = std::make_unique<Rmsprop>();
    out->alpha_ = alpha_, out->eps_ = eps_, out->weight_decay_ = weight_decay_;
    return out;
  }

 protected:
  std::vector<std::string> state_names() const override { return {"square_avg"}; }
  void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states, uint64_t, int64_t,
                    double learning_rate) const override {
    rmsprop_update(context, {.range = range,
                             .square = states[0],
                             .step = {.learning_rate = static_cast<float>(learning_rate),
                                      .alpha = static_cast<float>(alpha_),
                                      .eps = static_cast<float>(eps_),
                                      .weight_decay = static_cast<float>(weight_decay_)}});
  }

 private:
  double alpha_ = 0.99, eps_ = 1e-8, weight_decay_ = 0;
};

[[maybe_unused]] const bool added = optimizers().add("rmsprop", [] { return std::unique_ptr<Optimizer>(new Rmsprop); });

}  // namespace
}  // namespace hone
