// What Muon takes as a matrix, and the iteration that orthogonalizes it.
#include <gtest/gtest.h>

#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"
#include "tests/train/optim/tensors.h"
#include "train/optim/newton_schulz.h"
#include "train/optim/tensor_parts.h"

namespace hone::test {
namespace {

std::vector<std::string> state_names(const Optimizer& optimizer) {
  StateSection section;
  optimizer.save_state(section);
  std::vector<std::string> out;
  for (const NamedTensor& named : section.tensors) out.push_back(named.name);
  return out;
}

// A fused matrix moves as its tensors do alone, each with its own norm.
TEST(Muon, UpdatesTheTensorsOfAFusedMatrixOneByOne) {
  Tensors fused, alone;
  fused.add_waves("q", {11, 6}, {{"q", 6}, {"k", 2}, {"v", 3}});
  const std::span<const float> all = fused.values("q");
  const std::vector<float> start(all.begin(), all.end());
  int64_t row = 0;
  for (const auto& [name, rows] : {std::pair{"q", int64_t{6}}, {"k", 2}, {"v", 3}}) {
    const std::vector<float> own(start.begin() + row * 6, start.begin() + (row + rows) * 6);
    alone.add(name, {rows, 6}, own);
    row += rows;
  }
  const auto a = make_optimizer("muon", "weight_decay = 0.1"), b = make_optimizer("muon", "weight_decay = 0.1");
  a->attach(fused.context(), whole_parts(fused.params()));
  b->attach(alone.context(), whole_parts(alone.params()));
  for (int64_t step = 1; step <= 3; ++step) {
    fused.set_grads(step);
    const std::span<const float> grads = fused.at("q").grad.as<float>();
    alone.set_grad("q", {grads.begin(), grads.begin() + 36});
    alone.set_grad("k", {grads.begin() + 36, grads.begin() + 48});
    alone.set_grad("v", {grads.begin() + 48, grads.end()});
    fused.update(*a, step, 0.01);
    alone.update(*b, step, 0.01);
  }
  for (const auto& [name, first] : {std::pair{"q", size_t{0}}, {"k", 36}, {"v", 48}}) {
    const std::span<const float> own = alone.values(name);
    for (size_t i = 0; i < own.size(); ++i) EXPECT_EQ(fused.values("q")[first + i], own[i]) << name << " " << i;
  }
}

TEST(Muon, LeavesEmbeddingsHeadAndVectorsToAdamw) {
  Tensors tensors;
  tensors.add_waves("model.embed_tokens.weight", {8, 4}).lookup = true;
  tensors.add_waves("model.layers.0.mlp.up_proj.weight", {6, 4});
  tensors.add_waves("model.norm.weight", {4});
  tensors.add_waves("lm_head.weight", {8, 4});
  tensors.add_waves("score.weight", {1, 4});
  const auto muon = make_optimizer("muon");
  muon->attach(tensors.context(), whole_parts(tensors.params()));
  EXPECT_EQ(
      state_names(*muon),
      (std::vector<std::string>{"momentum_buffer.model.layers.0.mlp.up_proj.weight",
                                "exp_avg.model.embed_tokens.weight", "exp_avg_sq.model.embed_tokens.weight",
                                "exp_avg.model.norm.weight", "exp_avg_sq.model.norm.weight", "exp_avg.lm_head.weight",
                                "exp_avg_sq.lm_head.weight", "exp_avg.score.weight", "exp_avg_sq.score.weight"}));
  EXPECT_EQ(muon->state_bytes(), 4 * (64 + 2 * 4 * 64));  // one state for the matrix, two for each other parameter
}

// A file that stores a matrix transposed (GPT-2) has rows and columns the other way round.
TEST(Muon, TheScaleIsThatOfTheFilesMatrix) {
  const auto moved = [](bool transposed, const char* rule) {
    Tensors tensors;
    Param& param = tensors.add("w", {16, 4}, std::vector<float>(64));
    param.transposed = transposed;
    const auto muon = make_optimizer("muon", concat("adjust_lr_fn = \"", rule, "\""));
    muon->attach(tensors.context(), whole_parts(tensors.params()));
    tensors.step(*muon, 1, 0.5);
    return tensors.values("w")[3];
  };
  EXPECT_FLOAT_EQ(moved(false, "original"), 2 * moved(true, "original"));  // sqrt(16 / 4), and 1
  EXPECT_FLOAT_EQ(moved(false, "match_rms_adamw"), moved(true, "match_rms_adamw"));
  EXPECT_FLOAT_EQ(moved(false, "match_rms_adamw") * 2, moved(false, "original") * 0.2f * 4);
}

// With coefficients that converge (Muon's own stop near 1), all singular values become 1.
TEST(NewtonSchulz, MakesTheShorterSideOrthonormal) {
  Tensors tensors;
  for (const auto& [name, shape] : {std::pair{"wide", std::vector<int64_t>{5, 40}}, {"tall", {40, 5}}}) {
    std::vector<float> values;
    for (int i = 0; i < 200; ++i) values.push_back(std::sin(static_cast<float>(i * i) * 0.37f));
    tensors.add(name, shape, values);
    const ScratchScope scope(tensors.context());
    const Orthogonal found =
        orthogonalize(tensors.context(), tensors.at(name).value, {.a = 1.875f, .b = -1.25f, .c = 0.375f, .steps = 30});
    EXPECT_EQ(found.transposed, shape[0] < shape[1]);
    ASSERT_EQ(found.direction.dim(0), 40);
    ASSERT_EQ(found.direction.dim(1), 5);
    for (int i = 0; i < 5; ++i)
      for (int j = 0; j < 5; ++j) {
        double dot = 0;
        for (int k = 0; k < 40; ++k) dot += double{found.direction.row<float>(k)[i]} * found.direction.row<float>(k)[j];
        EXPECT_NEAR(dot, i == j ? 1 : 0, 1e-5) << i << " " << j;
      }
  }
}

TEST(NewtonSchulz, AZeroMatrixStaysZero) {
  Tensors tensors;
  tensors.add("w", {4, 4}, std::vector<float>(16));
  const Orthogonal found = orthogonalize(tensors.context(), tensors.at("w").value, {});
  for (const float x : found.direction.as<float>()) EXPECT_EQ(x, 0);
}

TEST(Muon, SettingsThatCannotBeAreRefused) {
  for (const auto& [settings, message] :
       {std::pair{"ns_steps = 0", "ns_steps must be in [1, 99]"},
        {"ns_coefficients = [1.0, 2.0]", "ns_coefficients has 2 numbers; it must have 3"},
        {"adjust_lr_fn = \"rms\"", "adjust_lr_fn must be match_rms_adamw or original"},
        {"momentum = 1.0", "momentum must be in [0, 1)"}})
    EXPECT_TRUE(says(error_of([&, text = settings] { make_optimizer("muon", text); }), message)) << settings;
  Tensors tensors;
  tensors.add_waves("w", {4, 4});
  EXPECT_TRUE(
      says(error_of([&] {
             make_optimizer("muon", "ns_dtype = \"bf16\"")->attach(tensors.context(), whole_parts(tensors.params()));
           }),
           "ns_dtype = bf16 needs a GPU"));
}

// Matrices, fused matrices and vectors, f32 and bf16: a saved state goes on bit for bit.
TEST(WholeTensorOptimizers, GoOnFromASavedStateBitForBit) {
  for (const char* kind : {"muon", "adafactor"})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const char* settings : {"", "extra"}) {
        const std::string keys = *settings == 0                ? ""
                                 : std::string(kind) == "muon" ? "moments = \"bf16\""
                                                               : "beta1 = 0.9\nscale_parameter = true";
        SCOPED_TRACE(concat(kind, " ", name_of(dtype), " ", keys));
        const auto fill = [](Tensors& tensors) {
          tensors.add_waves("qkv", {12, 5}, {{"q", 6}, {"k", 3}, {"v", 3}});
          tensors.add_waves("norm", {7});
          tensors.add_waves("down", {5, 9});
        };
        Tensors whole(dtype), resumed(dtype);
        fill(whole);
        fill(resumed);
        const auto a = make_optimizer(kind, keys), b = make_optimizer(kind, keys);
        a->attach(whole.context(), whole_parts(whole.params()));
        b->attach(resumed.context(), whole_parts(resumed.params()));
        for (int64_t step = 1; step <= 3; ++step) whole.step(*a, step, 0.01);
        StateSection section;
        a->save_state(section);
        b->load_state(section);
        resumed.copy_from(whole);
        whole.step(*a, 4, 0.01);
        resumed.step(*b, 4, 0.01);
        EXPECT_TRUE(whole.bytes() == resumed.bytes());
      }
}

// Stacked experts are matrices each.
TEST(FileTensors, AStackHasOneTensorForEachMatrix) {
  Tensors tensors;
  Param& stack = tensors.add_waves("experts", {3, 4, 5});
  const std::vector<FileTensor> found = file_tensors(stack);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[2].name, "experts.2");
  EXPECT_EQ(found[2].begin, 40);
  EXPECT_EQ(found[2].rows, 4);
  EXPECT_EQ(found[2].cols, 5);
}

}  // namespace
}  // namespace hone::test
