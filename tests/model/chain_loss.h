#pragma once
// The gradient of a loss with respect to all weights, compared with finite differences.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/elementwise/noise.h"
#include "kernels/lm_head/logprob.h"
#include "model/lora.h"
#include "tests/model/tiny_model.h"

namespace hone::test {

// A loss that reads every log-prob and entropy with a different weight, plus the losses made inside layers, and its
// gradient.
class ChainLoss {
 public:
  ChainLoss(Context& context, Model& model, std::span<const BatchPart> parts)
      : context_(context), model_(model), arena_(context.device()) {
    batch_ = pack_batch(context, arena_, parts);
    const int64_t count = batch_.num_tokens;
    const std::vector<int32_t> all = all_rows(count),
                               targets = random_tokens(static_cast<size_t>(count), model.shape().vocab_size, 11);
    rows_ = upload(context, arena_, std::span<const int32_t>(all));
    targets_ = upload(context, arena_, std::span<const int32_t>(targets));
    for (int64_t t = 0; t < count; ++t)
      weights_.push_back(std::sin(static_cast<float>(t) + 1)),
          entropy_weights_.push_back(0.5f * std::cos(static_cast<float>(t))),
          token_weights_.push_back(t % 5 == 1 ? 0 : 1.0f / static_cast<float>(count + t));
    sums_.resize(static_cast<size_t>(model.num_aux_sums()));
  }
  double value(const std::optional<DropoutStream>& draws = {}) {
    ScratchScope scope(context_);
    const DropoutScope dropout(model_, draws);
    const Outputs out = outputs();
    logprob_forward(context_, {.logp = out.logp,
                               .lse = out.lse,
                               .entropy = out.entropy,
                               .hidden = infer(context_, model_, batch_, rows_, nullptr),
                               .w = model_.lm_head().value,
                               .targets = targets_,
                               .inv_temperature = 0.8f,
                               .softcap = model_.shape().logit_softcap});
    double sum = 0;
    for (size_t t = 0; t < weights_.size(); ++t)
      sum += double{weights_[t]} * out.logp.ptr<float>()[t] + double{entropy_weights_[t]} * out.entropy.ptr<float>()[t];
    return sum + aux_value(draws);
  }
  void gradient(Recompute recompute, const std::optional<DropoutStream>& draws = {}) {
    ScratchScope scope(context_);
    TrainingPass pass(context_, model_, recompute);
    const Outputs out = outputs();
    const Tensor hidden = pass.forward(batch_, rows_, {}, draws, aux()),
                 dhidden = context_.scratch().take(DType::f32, hidden.dims());
    logprob_forward(context_, {.logp = out.logp,
                               .lse = out.lse,
                               .entropy = out.entropy,
                               .hidden = hidden,
                               .w = model_.lm_head().value,
                               .targets = targets_,
                               .inv_temperature = 0.8f,
                               .softcap = model_.shape().logit_softcap});
    model_.zero_grad(context_);
    logprob_backward(context_, {.dhidden = dhidden,
                                .dw = model_.lm_head().grad,
                                .grad = {host_view(std::span(weights_)), host_view(std::span(entropy_weights_))},
                                .lse = out.lse,
                                .entropy = out.entropy,
                                .hidden = hidden,
                                .w = model_.lm_head().value,
                                .targets = targets_,
                                .inv_temperature = 0.8f,
                                .softcap = model_.shape().logit_softcap});
    pass.backward(dhidden);
  }

 private:
  AuxLoss aux() {
    if (sums_.empty()) return {};
    std::ranges::fill(sums_, 0.0f);
    return {.weights = host_view(std::span(token_weights_)),
            .target_weights = host_view(std::span(token_weights_)),
            .sums = host_view(std::span(sums_))};
  }
  // The losses made inside layers.
  double aux_value(const std::optional<DropoutStream>& draws) {
    if (sums_.empty()) return 0;
    TrainingPass pass(context_, model_, Recompute::none);
    const Tensor hidden = pass.forward(batch_, rows_, {}, draws, aux());
    if (mtp_of(model_)) {  // its loss is computed in the backward pass
      const ScratchScope scope(context_);
      const std::vector<float> kept = download(context_, model_.flat_grads());
      const Tensor dhidden = context_.scratch().take(DType::f32, hidden.dims());
      context_.zero(dhidden);
      pass.backward(dhidden);
      std::ranges::copy(kept, model_.flat_grads().as<float>().begin());
    }
    return model_.end_step(context_, std::vector<double>(sums_.begin(), sums_.end())).loss;
  }
  struct Outputs {
    Tensor logp, lse, entropy;
  };
  Outputs outputs() {
    const auto column = [&] { return context_.scratch().take(DType::f32, {batch_.num_tokens}); };
    return {column(), column(), column()};
  }

  Context& context_;
  Model& model_;
  Arena arena_;
  Batch batch_;
  Tensor rows_, targets_;
  std::vector<float> weights_, entropy_weights_;
  std::vector<float> token_weights_, sums_;  // AuxLoss
};

// Compares the gradient of each trained parameter slice with central differences along a direction that is half the
// gradient's own and half random. The differences of two steps are extrapolated (Richardson), which leaves an error of
// fourth order.
inline void expect_chain_gradient(ChainLoss& loss, Model& model, Recompute recompute = Recompute::none,
                                  const std::optional<DropoutStream>& draws = {}) {
  loss.gradient(recompute, draws);
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (const Param* param : model.params()) {
    if (!param->grad) continue;
    int64_t row = 0;
    for (const Param::Slice& block : param->slices) {
      const std::span<float> value = param->value.rows(row, block.rows).as<float>(),
                             grad = param->grad.rows(row, block.rows).as<float>();
      row += block.rows;
      double grad_norm = 0, random_norm = 0, expected = 0;
      std::vector<double> direction(value.size());
      for (double& d : direction) d = normal(random), random_norm += d * d;
      for (const float g : grad) grad_norm += double{g} * g;
      for (size_t i = 0; i < value.size(); ++i) {
        direction[i] = 0.5 * direction[i] / std::sqrt(random_norm) + 0.5 * grad[i] / std::sqrt(grad_norm);
        expected += direction[i] * grad[i];
      }
      const std::vector<float> before(value.begin(), value.end());
      const auto difference = [&](double step) {
        double side[2];
        for (const int sign : {0, 1}) {
          for (size_t i = 0; i < value.size(); ++i)
            value[i] = static_cast<float>(before[i] + (sign ? step : -step) * direction[i]);
          side[sign] = loss.value(draws);
        }
        std::ranges::copy(before, value.begin());
        return (side[1] - side[0]) / (2 * step);
      };
      const double measured = (4 * difference(0.01) - difference(0.02)) / 3;
      EXPECT_GT(grad_norm, 0) << block.name;
      EXPECT_NEAR(measured, expected, 2e-3 * std::sqrt(grad_norm) + 1e-3) << block.name;
    }
  }
}

}  // namespace hone::test
