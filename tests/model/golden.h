#pragma once
// Tiny models with logits and gradients computed by transformers (tests/golden/make_families.py). The weights are
// functions of name and index.
#include <cmath>
#include <cstring>
#include <map>

#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/noise.h"
#include "kernels/lm_head/logprob.h"
#include "model/forward.h"
#include "tests/model/tiny_model.h"
#include "tests/support/logits.h"

namespace hone::test {

inline float golden_weight(const std::string& name, int64_t index, bool matrix) {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  uint32_t x = (static_cast<uint32_t>(index) + hash) * 2654435761u;
  x = (x ^ (x >> 15)) * 2246822519u;
  x ^= x >> 13;
  const double u = static_cast<double>(x >> 8) / (1 << 24) - 0.5;
  if (matrix) return static_cast<float>(0.6 * u);
  return static_cast<float>(name.ends_with(".weight") ? 1 + 0.4 * u : 0.4 * u);
}

// Calls visit(name, index in the file's tensor, element of the parameter on the host) for each number of a parameter.
template <class Visit>
void for_each_number(const Param& param, Visit visit) {
  const int64_t columns = param.shape.size() == 1 ? 1 : param.shape[1];
  int64_t first = 0;
  for (const Param::Slice& block : param.slices) {
    for (int64_t r = 0; r < block.rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        visit(block.name, param.transposed ? c * block.rows + r : r * columns + c, (first + r) * columns + c);
    first += block.rows;
  }
}

// An allocated model whose weights are golden_weight().
inline std::unique_ptr<Model> golden_model(Context& context, const Json& config, DType dtype) {
  std::unique_ptr<Model> model = make_model(config, "golden");
  model->allocate(context, dtype, true);
  Arena arena(context.device());
  for (const Param* param : model->params()) {
    std::vector<float> host(static_cast<size_t>(param->value.size()));
    for_each_number(*param, [&](const std::string& name, int64_t index, int64_t element) {
      host[static_cast<size_t>(element)] = golden_weight(name, index, param->shape.size() > 1);
    });
    const Tensor staged = arena.take(DType::f32, param->value.dims());
    context.copy(staged.view({staged.size()}), host_view(std::span(host)));
    cast(context, param->value, staged);
  }
  context.synchronize();
  return model;
}

// A golden file and a model of its config on a device, or `model`.
class Golden {
 public:
  Golden(Context& context, const std::string& name, DType dtype, std::unique_ptr<Model> model = nullptr)
      : context_(context),
        file_(source_folder() / "tests" / "golden" / (name + ".safetensors")),
        model_(std::move(model)) {
    if (!model_) model_ = golden_model(context, config(), dtype);
  }
  Json config() const { return parse_json(file_.metadata().at("config"), "golden"); }
  Model& model() { return *model_; }
  const SafetensorsReader& file() const { return file_; }

  // The error of plain bf16 in transformers: "logits" or "gradients".
  double bf16_error(const char* of) const {
    const Json errors = parse_json(file_.metadata().at("bf16_errors"), "bf16_errors");
    return errors.at(of).as_double();
  }
  // The largest error of the logits, and of any parameter's gradient, relative to its largest number. aux_loss: the
  // error of the routers' balance loss, which is part of the loss that the gradients are of.
  struct Errors {
    double logits = 0, gradients = 0, aux_loss = 0;
    std::string worst;
  };
  Errors errors(Recompute recompute = Recompute::none) {
    const std::vector<int32_t> ids = numbers<int32_t>("input_ids");
    const int64_t S = file_.at("input_ids").dim(0), T = file_.at("input_ids").dim(1), V = model_->shape().vocab_size;
    std::vector<BatchPart> parts;
    std::vector<int32_t> rows, targets;
    for (int64_t s = 0; s < S; ++s) {
      parts.push_back({std::span(ids).subspan(static_cast<size_t>(s * T), static_cast<size_t>(T))});
      for (int64_t t = 0; t + 1 < T; ++t) {
        rows.push_back(static_cast<int32_t>(s * T + t));
        targets.push_back(ids[static_cast<size_t>(s * T + t + 1)]);
      }
    }
    Arena arena(context_.device());
    const Batch batch = pack_batch(context_, arena, parts);
    Errors out;
    {
      const ScratchScope scope(context_);
      const std::vector<int32_t> all = all_rows(S * T);
      const Tensor hidden =
          infer(context_, *model_, batch, upload(context_, arena, std::span<const int32_t>(all)), nullptr);
      const Tensor logits = arena.take(DType::f32, {S * T, V});
      lm_head_logits(context_, *model_, logits, hidden);
      out.logits = worst(download(context_, logits.view({logits.size()})), numbers<float>("logits"));
    }
    model_->zero_grad(context_);
    TrainingPass pass(context_, *model_, recompute);
    const auto count = static_cast<int64_t>(rows.size());
    // transformers' mean is over all tokens of the batch.
    AuxLoss aux;
    if (const int64_t sums = model_->num_aux_sums(); sums > 0) {
      const std::vector<float> weights(static_cast<size_t>(S * T), 1 / static_cast<float>(S * T));
      aux = {.weights = upload(context_, arena, std::span<const float>(weights)),
             .sums = arena.take(DType::f32, {sums})};
      context_.zero(aux.sums);
    }
    const Tensor hidden = pass.forward(batch, upload(context_, arena, std::span<const int32_t>(rows)), {}, {}, aux),
                 dhidden = arena.take(hidden.dtype, hidden.dims());
    const std::vector<float> dlogp(rows.size(), -1 / static_cast<float>(count));
    const LogprobGrad grad{.logp = upload(context_, arena, std::span<const float>(dlogp)), .entropy = {}};
    const Tensor logp = arena.take(DType::f32, {count}), lse = arena.take(DType::f32, {count});
    Param& head = model_->lm_head();
    logprob_fused(context_, {.logp = logp,
                             .lse = lse,
                             .dhidden = dhidden,
                             .dw = head.grad,
                             .grad = grad,
                             .hidden = hidden,
                             .w = head.value,
                             .targets = upload(context_, arena, std::span<const int32_t>(targets)),
                             .inv_temperature = 1,
                             .softcap = model_->shape().logit_softcap});
    pass.backward(dhidden);
    if (aux.sums && file_.contains("aux_loss")) {
      const std::vector<float> sums = download(context_, aux.sums);
      const AuxReport report = model_->end_step(context_, std::vector<double>(sums.begin(), sums.end()));
      const double expected = double{numbers<float>("aux_loss")[0]} * config().at("router_aux_loss_coef").as_double();
      out.aux_loss = std::fabs(report.loss - expected) / expected;
    }
    for (const Param* param : model_->params()) {
      if (!param->grad) continue;
      const std::vector<float> actual = download(context_, param->grad.view({param->grad.size()}));
      std::map<std::string, std::vector<float>> ours;
      for_each_number(*param, [&](const std::string& name, int64_t index, int64_t element) {
        std::vector<float>& to = ours[name];
        to.resize(std::max(to.size(), static_cast<size_t>(index) + 1));
        to[static_cast<size_t>(index)] = actual[static_cast<size_t>(element)];
      });
      for (const auto& [name, values] : ours)
        if (const double error = worst(values, numbers<float>("grad." + name)); !(error <= out.gradients)) {
          out.gradients = error;
          out.worst = name;
        }
    }
    return out;
  }

 private:
  template <class T>
  std::vector<T> numbers(const std::string& name) const {
    const Tensor tensor = file_.at(name);
    std::vector<T> out(static_cast<size_t>(tensor.size()));
    std::memcpy(out.data(), tensor.data, tensor.bytes());
    return out;
  }
  static double worst(const std::vector<float>& actual, const std::vector<float>& expected) {
    if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
    double largest = 0, difference = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      largest = std::max(largest, std::fabs(double{expected[i]}));
      const double d = std::fabs(double{actual[i]} - expected[i]);
      if (!(d <= difference)) difference = d;  // NaN is worst
    }
    return difference / largest;
  }

  Context& context_;
  SafetensorsReader file_;
  std::unique_ptr<Model> model_;
};

inline constexpr const char* golden_families[] = {"deepseek_v2",
                                                  "deepseek_v3",
                                                  "deepseek_v3_plain",
                                                  "gemma2",
                                                  "gemma3_text",
                                                  "gemma3_text_scaled",
                                                  "gpt2",
                                                  "gpt_oss",
                                                  "hone_decoder_helium",
                                                  "hone_decoder_stablelm",
                                                  "llama",
                                                  "mistral",
                                                  "mixtral",
                                                  "olmo2",
                                                  "olmoe",
                                                  "olmoe_clipped",
                                                  "phi3",
                                                  "phi3_long",
                                                  "qwen2",
                                                  "qwen2_moe",
                                                  "qwen2_moe_gelu",
                                                  "qwen3",
                                                  "qwen3_moe",
                                                  "smollm3"};

}  // namespace hone::test
