#include <cmath>

#include "kernels/optimizer/optimizer.h"
#include "train/optim/optimizer.h"

namespace hone {
namespace {

class Adamw : public Optimizer {
 public:
  void fields(Fields& f) override {
    f("adam_beta1", beta1_, "decay of the gradient's mean");
    f("adam_beta2", beta2_, "decay of the squared gradient's mean");
    f("adam_epsilon", epsilon_, "added to the denominator");
    f("weight_decay", weight_decay_, "of matrices; norms and biases do not decay");
    f("moments", moments_,
      "f32 | bf16: what both means are kept in; bf16, rounded stochastically, takes half the memory");
    f.require("adam_beta1", beta1_ >= 0 && beta1_ < 1, "adam_beta1 must be in [0, 1)");
    f.require("adam_beta2", beta2_ >= 0 && beta2_ < 1, "adam_beta2 must be in [0, 1)");
    f.require("adam_epsilon", epsilon_ > 0, "adam_epsilon must be above 0");
    f.require("weight_decay", weight_decay_ >= 0, "weight_decay must not be negative");
    f.require("moments", moments_ == "f32" || moments_ == "bf16", "moments must be f32 or bf16");
  }
  std::unique_ptr<Optimizer> with_same_settings() const override {
    auto out = std::make_unique<Adamw>();
    out->beta1_ = beta1_, out->beta2_ = beta2_, out->epsilon_ = epsilon_, out->weight_decay_ = weight_decay_,
    out->moments_ = moments_;
    return out;
  }

 protected:
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  DType state_dtype() const override { return moments_ == "bf16" ? DType::bf16 : DType::f32; }
  void update_range(Context& context, const ParamRange& range, std::span<const Tensor> states, uint64_t stream,
                    int64_t step, double learning_rate) const override {
    const auto steps = static_cast<double>(step);
    adamw_update(context, {.range = range,
                           .m = states[0],
                           .v = states[1],
                           .step = {.learning_rate = static_cast<float>(learning_rate),
                                    .beta1 = static_cast<float>(beta1_),
                                    .beta2 = static_cast<float>(beta2_),
                                    .eps = static_cast<float>(epsilon_),
                                    .weight_decay = static_cast<float>(weight_decay_),
                                    .correction1 = static_cast<float>(1 - std::pow(beta1_, steps)),
                                    .correction2 = static_cast<float>(1 - std::pow(beta2_, steps)),
                                    .stream = stream}});
  }

 private:
  double beta1_ = 0.9, beta2_ = 0.999, epsilon_ = 1e-8, weight_decay_ = 0;
  std::string moments_ = "f32";
};

[[maybe_unused]] const bool added = optimizers().add("adamw", [] { return std::unique_ptr<Optimizer>(new Adamw); });

}  // namespace
}  // namespace hone
