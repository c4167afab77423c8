// The gradient of a step in memory that nobody has zeroed.
#include "train/gradient_sum.h"

#include <gtest/gtest.h>

#include <limits>

#include "model/mtp.h"
#include "tests/train/rig.h"
#include "train/micro_batch_runner.h"

namespace hone::test {
namespace {

constexpr float nan_f32 = std::numeric_limits<float>::quiet_NaN();

struct GradientCase {
  std::string name;
  Json config;
  LoraConfig lora{};
};

// Every family, with the lm_head tied and not; experts without tokens; multi-token prediction; adapters.
std::vector<GradientCase> gradient_cases() {
  std::vector<GradientCase> out;
  for (const std::string& family : families().names()) {
    if (family == "listed_layers") continue;  // of tests/train/aux_loss_test.cpp: its layers are named by each test
    for (const bool tied : {false, true})
      out.push_back({concat(family, tied ? ", tied" : ""), with(tiny_config(family), {{"tie_word_embeddings", tied}})});
  }
  out.push_back({"one expert of 4", with(tiny_config("olmoe"), {{"num_experts_per_tok", 1}})});
  for (const bool tied : {false, true})
    out.push_back({concat("multi-token prediction", tied ? ", tied" : ""),
                   with(tiny_config("qwen3"), {{"num_nextn_predict_layers", 2}, {"tie_word_embeddings", tied}})});
  out.push_back(
      {"shared keys and values",
       with(tiny_config("hone_decoder"), {{"num_hidden_layers", 4}, {"kv_share", 2}, {"sliding_window", Json()}})});
  const LoraConfig lora{.r = 2, .target_modules = {"all-linear"}};
  out.push_back({"adapters", tiny_config("llama"), lora});
  out.push_back({"adapters of a latent attention", tiny_config("deepseek_v3"), lora});
  return out;
}

// A model and the pieces of a trainer's pass over one micro-batch.
class OnePass {
 public:
  OnePass(Context& context, const GradientCase& of)
      : context_(context), model_(make_tiny(context, of.config, true, of.lora)) {
    static const size_t lengths[] = {7, 5};
    staging_.fill(pointers(samples_ = make_samples(lengths)));
    aux_sums_.resize(static_cast<size_t>(model_->num_aux_sums()));
  }
  Model& model() { return *model_; }
  std::span<float> grads() { return model_->flat_grads().as<float>(); }
  // Without hooks the gradient is added to what the memory holds.
  void run(UnitHooks* hooks) {
    PhaseTimer phases(context_);
    MicroBatchRunner runner(context_, *model_, {}, phases, hooks);
    std::vector<float> logp(staging_.rows().size());
    MicroBatchPosition place{};
    if (!aux_sums_.empty()) place.aux_sums = host_view(std::span(aux_sums_));
    phases.begin();
    runner.queue_static_grad(staging_, *make_objective("sft"), 0.125, place, host_view(std::span(logp)), {});
  }
  void skip(UnitHooks* hooks) {
    PhaseTimer phases(context_);
    MicroBatchRunner runner(context_, *model_, {}, phases, hooks);
    phases.begin();
    runner.skip(*make_objective("sft"), nullptr);
  }

 private:
  Context& context_;
  std::unique_ptr<Model> model_;
  std::vector<Sample> samples_;
  MicroBatchData staging_;
  std::vector<float> aux_sums_;
};

class GradientSumTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
  const uint8_t active_ = 1;
};

// Three micro-batches: the first in the sum, whose memory is NaN; the others in staging buffers that other units have
// used. Gaps between parameters are zero, as the norm and the optimizer read them.
TEST_F(GradientSumTest, NeedsNoZeroedMemory) {
  for (const GradientCase& of : gradient_cases()) {
    SCOPED_TRACE(of.name);
    OnePass plain(context_, of), pass(context_, of);
    plain.run(nullptr);
    const std::unique_ptr<GradientSum> sum = make_local_gradient_sum(context_, grad_units(context_, pass.model()), 64);
    std::ranges::fill(pass.grads(), nan_f32);
    sum->begin_step(3);
    for (int round = 0; round < 3; ++round) {
      sum->begin_round({&active_, 1});
      pass.run(sum.get());
    }
    sum->end_rounds();
    ASSERT_EQ(pass.grads().size(), plain.grads().size());
    double norm = 0;
    for (size_t i = 0; i < pass.grads().size(); ++i) {
      const float g = plain.grads()[i];
      ASSERT_EQ(pass.grads()[i], g + g + g) << i;
      norm += g * g;
    }
    EXPECT_GT(norm, 1e-4);
  }
}

// A micro-batch that contributes nothing has a gradient of zeros, and so has a step without micro-batches.
TEST_F(GradientSumTest, IsZeroWithoutContributions) {
  for (const GradientCase& of : gradient_cases()) {
    SCOPED_TRACE(of.name);
    OnePass pass(context_, of);
    const std::unique_ptr<GradientSum> sum = make_local_gradient_sum(context_, grad_units(context_, pass.model()), 64);
    for (const int rounds : {0, 1, 2}) {
      std::ranges::fill(pass.grads(), nan_f32);
      sum->begin_step(static_cast<size_t>(rounds));
      for (int round = 0; round < rounds; ++round) {
        sum->begin_round({&active_, 1});
        pass.skip(sum.get());
      }
      sum->end_rounds();
      for (const float g : pass.grads()) ASSERT_EQ(g, 0) << rounds << " rounds";
    }
  }
}

// A matrix, a vector and a matrix with gaps between them.
TEST_F(GradientSumTest, MarksWhatAProductWritesAndZeroesTheRest) {
  std::vector<float> memory(3 * 64, nan_f32);
  const Tensor flat = host_view(std::span(memory));
  Param first, vector, last;
  first.shape = {3, 5};
  vector.shape = {7};
  last.shape = {2, 4};
  first.product_grad = last.product_grad = true;
  const GradUnit unit{.trained = {&first, &vector, &last}, .values = {}, .grads = flat};
  int64_t at = 0;
  for (Param* param : unit.trained) {
    param->grad = Tensor(flat.rows(at, param->num_elements()).data, DType::f32, DeviceKind::cpu, param->shape);
    at += param->padded_elements();
  }
  const auto count_nan = [&] { return std::ranges::count_if(memory, [](float x) { return x != x; }); };
  begin_gradients(context_, unit, flat);
  EXPECT_EQ(count_nan(), 15 + 8);
  EXPECT_FALSE(first.grad_target().accumulate);
  EXPECT_TRUE(first.grad_target().accumulate) << "the second product adds";
  EXPECT_TRUE(vector.grad_target().accumulate);
  std::fill_n(memory.begin(), 15, 2.0f);  // the product
  end_gradients(context_, unit);
  EXPECT_EQ(count_nan(), 0);
  EXPECT_EQ(std::ranges::count(memory, 2.0f), 15);
  EXPECT_TRUE(last.grad_target().accumulate);

  begin_gradients(context_, unit, flat);
  EXPECT_EQ(first.grad_to_add_to(context_).data, memory.data());
  EXPECT_EQ(std::ranges::count(memory, 2.0f), 0) << "an op that only adds needs zeros";
}

}  // namespace
}  // namespace hone::test
