// Multi-token prediction: the loss of a pass, compared with the formula written out for one sequence at a time.
#include "model/mtp.h"

#include <cmath>

#include "kernels/elementwise/noise.h"
#include "model/forward.h"
#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

constexpr int64_t width = 12, vocabulary = 19;

std::vector<float> rms_norm(std::span<const float> x, const Norm& norm) {
  double squares = 0;
  for (const float v : x) squares += double{v} * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + norm.eps);
  std::vector<float> out;
  for (size_t i = 0; i < x.size(); ++i)
    out.push_back(static_cast<float>(x[i] * scale * (norm.weight.value.ptr<float>()[i] + norm.offset)));
  return out;
}

std::vector<float> product(const Tensor& w, std::span<const float> x) {
  std::vector<float> out;
  for (int64_t r = 0; r < w.dim(0); ++r) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += double{w.row<float>(r)[i]} * x[i];
    out.push_back(static_cast<float>(sum));
  }
  return out;
}

double cross_entropy(std::span<const float> logits, int32_t target) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  return std::log(sum) - logits[static_cast<size_t>(target)];
}

// The cross-entropies of the modules at each token of one sequence; entry [k][i] is of token i + k + 2.
std::vector<std::vector<double>> expected_losses(Context& context, Model& model, const std::vector<int32_t>& ids) {
  std::vector<std::vector<double>> out;
  const Mtp& mtp = *mtp_of(model);
  const Tensor embedding = model.base_params().front()->value;
  std::vector<float> hidden = hidden_of(context, model, {{BatchPart{ids}}});
  for (size_t k = 0; k < mtp.size(); ++k) {
    const MtpModule& module = mtp.module(k);
    // Without the tokens at the end, which have no input.
    if (ids.size() <= k + 1) break;
    const size_t count = ids.size() - k - 1;
    std::vector<float> x;
    for (size_t i = 0; i < count; ++i) {
      std::vector<float> joined = rms_norm({embedding.row<float>(ids[i + k + 1]), width}, module.enorm);
      for (const float v : rms_norm(std::span(hidden).subspan(i * width, width), module.hnorm)) joined.push_back(v);
      for (const float v : product(module.eh_proj.weight.value, joined)) x.push_back(v);
    }
    const ScratchScope scope(context);
    const BatchPart part{std::span(ids).first(count)};
    const Batch batch = pack_batch(context, context.scratch(), {&part, 1});
    const Tensor in = host_view(std::span(x)).view({static_cast<int64_t>(count), width});
    module.layer.forward(context, {.batch = batch}, in, in);
    hidden.clear();
    std::vector<double>& losses = out.emplace_back();
    for (size_t i = 0; i < count; ++i) {
      const std::vector<float> normed = rms_norm(std::span(x).subspan(i * width, width), module.norm);
      hidden.insert(hidden.end(), normed.begin(), normed.end());
      if (i + k + 2 < ids.size())
        losses.push_back(cross_entropy(product(model.lm_head().value, normed), ids[i + k + 2]));
    }
  }
  return out;
}

}  // namespace

TEST(MultiTokenPrediction, TheLossIsTheFormulaOfEachSequence) {
  const std::unique_ptr<Device> device = cpu_device();
  Context context(*device);
  for (const char* family : {"qwen3", "gpt_oss", "deepseek_v3"}) {
    SCOPED_TRACE(family);
    const std::unique_ptr<Model> model = make_tiny(
        context, with(tiny_config(family),
                      {{"num_nextn_predict_layers", 2}, {"mtp_loss_coef", 0.5}, {"router_aux_loss_coef", 0.0}}));
    std::vector<std::vector<int32_t>> sequences;
    for (const size_t length : {6, 1, 2, 9})
      sequences.push_back(random_tokens(length, vocabulary, static_cast<uint32_t>(length)));
    // The tokens of even index are trained on, with weights of their own.
    std::vector<float> weights;
    std::vector<int32_t> rows;
    double expected = 0;
    for (const std::vector<int32_t>& ids : sequences) {
      const auto first = static_cast<int32_t>(weights.size());
      for (size_t i = 0; i < ids.size(); ++i) {
        const bool trained = i > 0 && i % 2 == 0;
        weights.push_back(trained ? 0.1f * static_cast<float>(i) : 0);
        if (trained) rows.push_back(first + static_cast<int32_t>(i) - 1);
      }
      const std::vector<std::vector<double>> losses = expected_losses(context, *model, ids);
      for (size_t k = 0; k < losses.size(); ++k)
        for (size_t i = 0; i < losses[k].size(); ++i)
          expected += 0.5 / 2 * double{weights[static_cast<size_t>(first) + i + k + 2]} * losses[k][i];
    }
    const ScratchScope scope(context);
    const std::vector<BatchPart> parts(sequences.begin(), sequences.end());
    const Batch batch = pack_batch(context, context.scratch(), parts);
    std::vector<float> sums(static_cast<size_t>(model->num_aux_sums()));
    TrainingPass pass(context, *model, Recompute::none);
    const Tensor hidden = pass.forward(batch, host_view(std::span(rows)), {}, {},
                                       {.weights = host_view(std::span(weights)),
                                        .target_weights = host_view(std::span(weights)),
                                        .sums = host_view(std::span(sums))});
    pass.backward(hidden);
    const AuxReport report = model->end_step(context, std::vector<double>(sums.begin(), sums.end()));
    EXPECT_GT(expected, 0.1);
    EXPECT_NEAR(report.loss, expected, 1e-4 * expected);
    EXPECT_EQ(report.metrics().count("mtp/accuracy"), 1u);
  }
}

TEST(MultiTokenPrediction, NeedsAFactorAndAModule) {
  const Json config = tiny_config("qwen3");
  EXPECT_EQ(make_model(config, "test")->num_aux_sums(), 0);
  const auto sums = [&](const JsonObject& changes) {
    return make_model(with(config, changes), "test")->num_aux_sums();
  };
  EXPECT_EQ(sums({{"num_nextn_predict_layers", 0}}), 0);
  EXPECT_EQ(sums({{"num_nextn_predict_layers", 2}}), 6);
  EXPECT_EQ(sums({{"num_nextn_predict_layers", 2}, {"mtp_loss_coef", 0.0}}), 0);
  EXPECT_THROW(sums({{"num_nextn_predict_layers", -1}}), Error);
  EXPECT_THROW(sums({{"num_nextn_predict_layers", 1}, {"mtp_loss_coef", -0.5}}), Error);
}

}  // namespace hone::test
