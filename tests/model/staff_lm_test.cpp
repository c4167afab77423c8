// A small Llama-shaped model that another program trained for twelve steps: compares logits, gradients, losses and
// weights.
#include <cmath>
#include <map>

#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "kernels/lm_head/logprob.h"
#include "kernels/optimizer/optimizer.h"
#include "tests/model/tiny_model.h"
#include "tests/support/logits.h"

namespace hone::test {
namespace {

constexpr int64_t heads = 4, head_dim = 16;

Json config() {
  return JsonObject{{"model_type", "llama"},
                    {"vocab_size", 96},
                    {"hidden_size", 64},
                    {"intermediate_size", 176},
                    {"num_hidden_layers", 2},
                    {"num_attention_heads", heads},
                    {"num_key_value_heads", heads},
                    {"max_position_embeddings", 32},
                    {"rms_norm_eps", 1e-5},
                    {"rope_theta", 10000.0},
                    {"tie_word_embeddings", false}};
}

// Returns the other program's name for one of ours.
std::string their_name(std::string name) {
  const std::vector<std::pair<std::string, std::string>> parts{{"model.embed_tokens", "token_embeddings"},
                                                               {"model.layers.", "layers."},
                                                               {"self_attn.o_proj", "attn.output_proj"},
                                                               {"self_attn", "attn"},
                                                               {"mlp.gate_proj", "ffn.w1"},
                                                               {"mlp.up_proj", "ffn.w3"},
                                                               {"mlp.down_proj", "ffn.w2"},
                                                               {"input_layernorm", "ln1"},
                                                               {"post_attention_layernorm", "ln2"},
                                                               {"model.norm", "ln_final"}};
  for (const auto& [ours, theirs] : parts)
    if (const size_t at = name.find(ours); at != std::string::npos) name.replace(at, ours.size(), theirs);
  return name;
}

// Their RoPE rotates pairs (2i, 2i + 1) of a head, ours (i, i + d/2). Returns the row of their q and k for row r of
// ours.
int64_t their_row(const std::string& name, int64_t row) {
  if (!name.ends_with("q_proj.weight") && !name.ends_with("k_proj.weight")) return row;
  const int64_t head = row / head_dim, dim = row % head_dim, half = head_dim / 2;
  return head * head_dim + (dim < half ? 2 * dim : 2 * (dim - half) + 1);
}

// Calls each(name, ours, theirs) for every row of every parameter. `gradient` selects gradients instead of values.
template <class Each>
void walk_rows(Model& model, const SafetensorsReader& file, bool gradient, Each each) {
  for (const Param* param : model.params()) {
    int64_t first = 0;
    for (const Param::Slice& block : param->slices) {
      const Tensor theirs = file.at(their_name(block.name)),
                   ours = (gradient ? param->grad : param->value).rows(first, block.rows);
      ASSERT_EQ(theirs.size(), ours.size()) << block.name;
      const auto width = static_cast<size_t>(ours.row_size());
      std::vector<float> row(width);
      for (int64_t r = 0; r < block.rows; ++r) {
        std::memcpy(row.data(),
                    static_cast<const char*>(theirs.data) +
                        static_cast<size_t>(their_row(block.name, r)) * width * sizeof(float),
                    width * sizeof(float));
        each(block.name, std::span(ours.row<float>(r), width), std::span<const float>(row));
      }
      first += block.rows;
    }
  }
}

void expect_same(Model& model, const SafetensorsReader& file, bool gradient, double tolerance) {
  std::map<std::string, double> worst;
  walk_rows(model, file, gradient, [&](const std::string& name, std::span<float> ours, std::span<const float> theirs) {
    for (size_t i = 0; i < ours.size(); ++i)
      worst[name] = std::max(worst[name], static_cast<double>(std::fabs(ours[i] - theirs[i])));
  });
  for (const auto& [name, difference] : worst) EXPECT_LT(difference, tolerance) << name;
}

class StaffLm : public testing::Test {
 protected:
  void open(const std::filesystem::path& folder) {
    folder_ = folder;
    case_ = parse_json(read_file(folder / "case.json"), "case.json");
    model_ = make_model(config(), "test");
    model_->allocate(context_, DType::f32, true);
    load("init.safetensors");
  }
  void load(const std::string& name) {
    walk_rows(*model_, SafetensorsReader(folder_ / name), false,
              [](const std::string&, std::span<float> ours, std::span<const float> theirs) {
                std::ranges::copy(theirs, ours.begin());
              });
  }
  struct Step {
    Batch batch;
    Tensor rows, targets;
  };
  // Row t of a sequence predicts token t + 1; the last token is only a target.
  Step step(Arena& arena, size_t it) {
    std::vector<std::vector<int32_t>> inputs;
    std::vector<int32_t> targets;
    for (const Json& row : case_.at("tokens(12 steps,batch 4,33)").as_array()[it].as_array()) {
      inputs.emplace_back();
      for (const Json& id : row.as_array()) inputs.back().push_back(static_cast<int32_t>(id.as_int()));
      targets.insert(targets.end(), inputs.back().begin() + 1, inputs.back().end());
      inputs.back().pop_back();
    }
    const std::vector<BatchPart> parts(inputs.begin(), inputs.end());
    const std::vector<int32_t> rows = all_rows(static_cast<int64_t>(targets.size()));
    return {pack_batch(context_, arena, parts), upload(context_, arena, std::span<const int32_t>(rows)),
            upload(context_, arena, std::span<const int32_t>(targets))};
  }
  // Returns the mean cross entropy. The gradients are those of this step only.
  double loss_and_gradient(const Step& step) {
    ScratchScope scope(context_);
    const int64_t count = step.rows.dim(0);
    const auto column = [&] { return context_.scratch().take(DType::f32, {count}); };
    const Tensor hidden = pass_->forward(step.batch, step.rows),
                 dhidden = context_.scratch().take(DType::f32, hidden.dims()), logp = column(), lse = column();
    std::vector<float> dlogp(static_cast<size_t>(count), -1.0f / static_cast<float>(count));
    model_->zero_grad(context_);
    logprob_fused(context_, {.logp = logp,
                             .lse = lse,
                             .dhidden = dhidden,
                             .dw = model_->lm_head().grad,
                             .grad = LogprobGrad{host_view(std::span(dlogp)), {}, 0},
                             .hidden = hidden,
                             .w = model_->lm_head().value,
                             .targets = step.targets,
                             .inv_temperature = 1});
    pass_->backward(dhidden);
    double sum = 0;
    for (const float value : logp.as<float>()) sum -= value;
    return sum / static_cast<double>(count);
  }
  void make_pass() { pass_ = std::make_unique<TrainingPass>(context_, *model_, Recompute::none); }

  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
  std::filesystem::path folder_;
  Json case_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<TrainingPass> pass_;
};

TEST_F(StaffLm, FirstLogitsAndGradients) {
  HONE_SHARED_OR_SKIP(folder, "vectors/a1/staff_lm_rope_swiglu");
  open(folder);
  make_pass();
  Arena arena(*device_);
  const Step first = step(arena, 0);
  const Tensor hidden = infer(context_, *model_, first.batch, first.rows, nullptr),
               logits = arena.take(DType::f32, {hidden.dim(0), 96});
  lm_head_logits(context_, *model_, logits, hidden);
  const SafetensorsReader file(folder / "step0_logits.safetensors");
  std::vector<float> expected(static_cast<size_t>(logits.size()));
  ASSERT_EQ(file.at("logits").size(), logits.size());
  std::memcpy(expected.data(), file.at("logits").data, logits.bytes());
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(logits.as<float>()[i], expected[i], 2e-5) << i;
  loss_and_gradient(first);
  expect_same(*model_, SafetensorsReader(folder / "step0_grads.safetensors"), true, 2e-6);
}

TEST_F(StaffLm, TwelveStepsOfTraining) {
  HONE_SHARED_OR_SKIP(folder, "vectors/a1/staff_lm_rope_swiglu");
  open(folder);
  make_pass();
  Arena arena(*device_);
  const auto column = [&](DType dtype, int64_t count) {
    const Tensor out = arena.take(dtype, {count});
    context_.zero(out);
    return out;
  };
  const Tensor values = model_->flat_values(), grads = model_->flat_grads(), m = column(DType::f32, values.size()),
               v = column(DType::f32, values.size());
  const Tensor pieces = column(DType::f64, (grads.size() + norm_piece - 1) / norm_piece);
  const Tensor sum = column(DType::f64, 1), clip = column(DType::f32, 1), norm = column(DType::f32, 1);
  const JsonArray& trace = case_.at("trace").as_array();
  ASSERT_EQ(trace.size(), 12u);
  for (size_t it = 0; it < trace.size(); ++it) {
    EXPECT_NEAR(loss_and_gradient(step(arena, it)), trace[it].at("loss").as_double(), 2e-5) << "step " << it;
    sum_squares(context_, pieces, grads, norm_piece);
    sum_pieces(context_, sum, pieces);
    clip_factor(context_, clip, norm, sum, 1.0f);
    EXPECT_NEAR(norm.as<float>()[0], trace[it].at("grad_norm").as_double(), 2e-5) << "step " << it;
    // Their eps is added to the root of the uncorrected second moment, torch's to that of the corrected one.
    const double t = static_cast<double>(it) + 1, correction1 = 1 - std::pow(0.9, t),
                 correction2 = 1 - std::pow(0.95, t);
    adamw_update(context_, {.range = {values, {}, grads, {}, clip},
                            .m = m,
                            .v = v,
                            .step = {.learning_rate = static_cast<float>(trace[it].at("lr").as_double()),
                                     .beta1 = 0.9f,
                                     .beta2 = 0.95f,
                                     .eps = static_cast<float>(1e-8 / std::sqrt(correction2)),
                                     .weight_decay = 0.1f,
                                     .correction1 = static_cast<float>(correction1),
                                     .correction2 = static_cast<float>(correction2)}});
    if (it == 0) expect_same(*model_, SafetensorsReader(folder / "after_step0.safetensors"), false, 1e-4);
  }
  expect_same(*model_, SafetensorsReader(folder / "after_step11.safetensors"), false, 2e-4);
}

TEST_F(StaffLm, GreedyDecodingFromTheCache) {
  HONE_SHARED_OR_SKIP(folder, "vectors/a1/staff_lm_rope_swiglu");
  open(folder);
  load("after_step11.safetensors");
  const Json expected = parse_json(read_file(folder / "greedy_decode.json"), "greedy_decode.json");
  const JsonArray &tokens = expected.at("tokens").as_array(), &logps = expected.at("token_logprobs").as_array();
  TinyCache cache(context_, *model_, 1);
  std::vector<float> logits(96);
  for (size_t t = 0; t + 1 < tokens.size(); ++t) {
    const std::vector<int32_t> token{static_cast<int32_t>(tokens[t].as_int())};
    const std::vector<BatchPart> parts{{token, static_cast<int32_t>(t)}};
    std::vector<float> hidden = hidden_of(context_, *model_, parts, &cache.view(parts, std::vector<int64_t>{0}));
    lm_head_logits(context_, *model_, host_view(std::span(logits)).view({1, 96}),
                   host_view(std::span(hidden)).view({1, 64}));
    const auto best = std::ranges::max_element(logits);
    ASSERT_EQ(best - logits.begin(), tokens[t + 1].as_int()) << "token " << t + 1;
    double sum = 0;
    for (const float z : logits) sum += std::exp(double{z} - *best);
    EXPECT_NEAR(-std::log(sum), logps[t].as_double(), 2e-5);
  }
}

}  // namespace
}  // namespace hone::test
