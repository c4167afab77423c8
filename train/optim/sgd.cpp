#include "kernels/optimizer/optimizer.h"
#include "train/optim/optimizer.h"

namespace hone {
namespace {

class Sgd : public Optimizer {
 public:
  void fields(Fields& f) override {
    f("momentum", momentum_, "decay of the gradient's running sum");
    f("dampening", dampening_, "1 - the weight of a new gradient in the running sum");
    f("nesterov", nesterov_, "look ahead along the running sum");
    f("weight_decay", weight_decay_, "added to the gradient as weight_decay * value; norms and biases do not decay");
    f.require("momentum", momentum_ >= 0 && momentum_ < 1, "momentum must be in [0, 1)");
    f.require("nesterov", !nesterov_ || (momentum_ > 0 && dampening_ == 0),
              "nesterov needs momentum, and no dampening");
    f.require("weight_decay", weight_decay_ >= 0, "weight_decay must not be negative");
  }
  std::unique_ptr<Optimizer> with_same_settings() const override {
    auto out = std::make_unique<Sgd>();
    out->momentum_ = momentum_, out->dampening_ = dampening_, out->nesterov_ = nesterov_,
    out->weight_decay_ = weight_decay_;
    return out;
  }

 protected:
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states, uint64_t, int64_t step,
                    double learning_rate) const override {
    sgd_update(context, {.range = range,
                         .buffer = states[0],
                         .step = {.learning_rate = static_cast<float>(learning_rate),
                                  .momentum = static_cast<float>(momentum_),
                                  .dampening = static_cast<float>(dampening_),
                                  .weight_decay = static_cast<float>(weight_decay_),
                                  .nesterov = nesterov_,
                                  .first = step == 1}});
  }

 private:
  double momentum_ = 0, dampening_ = 0, weight_decay_ = 0;
  bool nesterov_ = false;
};

[[maybe_unused]] const bool added = optimizers().add("sgd", [] { return std::unique_ptr<Optimizer>(new Sgd); });

}  // namespace
}  // namespace hone
