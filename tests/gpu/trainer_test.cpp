// Training on a GPU: bits, memory, and losses that are not finite.
#include "train/trainer.h"

#include <cmath>
#include <limits>

#include "run/plan/plan.h"
#include "tests/gpu/gpu_model.h"

namespace hone::test {
namespace {

std::vector<Sample> samples_of(std::initializer_list<size_t> lengths) {
  std::vector<Sample> out;
  for (const auto& tokens : gpu_sequences(lengths)) {
    Sample& sample = out.emplace_back();
    sample.tokens = tokens;
    sample.columns.assign(columns::mask, tokens.size(), 1);
    sample.columns[columns::mask][0] = 0;
    sample.columns.assign(columns::behavior_logp, tokens.size(), -5);
    sample.columns.assign(columns::reference_logp, tokens.size(), -5);
    sample.columns.assign(columns::advantage, tokens.size(), out.size() % 2 == 0 ? 1.f : -1.f);
    sample.columns.assign(columns::old_value, tokens.size(), 0.1f);
    sample.columns.assign(columns::returns, tokens.size(), 0.3f);
  }
  return out;
}
std::vector<const Sample*> pointers(const std::vector<Sample>& samples) {
  std::vector<const Sample*> out;
  for (const Sample& sample : samples) out.push_back(&sample);
  return out;
}
std::unique_ptr<Objective> objective(const char* name) { return make_objective(name); }

struct Trained {
  std::vector<float> weights;
  std::vector<double> losses, norms;
  bool operator==(const Trained&) const = default;
};
Trained train(Context& context, Model& model, const char* name, TrainerConfig config, int steps) {
  Trainer trainer(context, model, std::move(config));
  const std::vector<Sample> samples = samples_of({70, 133, 64, 90, 5, 40});
  Trained out;
  for (int i = 0; i < steps; ++i) {
    const StepReport report = trainer.step(pointers(samples), *objective(name), 0.003);
    out.losses.push_back(report.loss), out.norms.push_back(report.grad_norm);
  }
  out.weights = on_host(context, model.flat_values());
  return out;
}

const Json& config() {
  static const Json json = gpu_config("qwen2", 64);
  return json;
}
std::unique_ptr<Model> fresh(DType dtype) { return gpu_model(config(), *cpu_model(config(), dtype), dtype); }
TrainerConfig in_pieces(int64_t tokens = 200) {
  TrainerConfig out;
  out.micro_batch_tokens = sized(tokens, tokens / 4);
  return out;
}
const int steps = sized(4, 2);

TEST(TrainerOnGpu, TwoRunsHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const char* name : {"sft", "grpo", "ppo"}) {
      if (!chosen()) continue;
      const Trained one = train(*gpu(), *fresh(dtype), name, in_pieces(), steps),
                    two = train(*gpu(), *fresh(dtype), name, in_pieces(), steps);
      EXPECT_EQ(one, two) << name;
    }
}

TEST(TrainerOnGpu, TrainsAsTheCpuDoes) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* name : {"sft", "grpo", "ppo"}) {
      if (!chosen()) continue;
      const auto there = cpu_model(config(), dtype);
      const Trained expected = train(cpu(), *there, name, in_pieces(), steps),
                    actual = train(*gpu(), *fresh(dtype), name, in_pieces(), steps);
      const double tolerance = dtype == DType::f32 ? 1e-4 : 2e-2;
      for (size_t i = 0; i < (dtype == DType::f32 ? expected.losses.size() : 2);
           ++i) {  // in bf16 the two diverge after a few steps
        EXPECT_NEAR(actual.losses[i], expected.losses[i], tolerance * (std::fabs(expected.losses[i]) + 0.1))
            << name << " step " << i;
        EXPECT_NEAR(actual.norms[i], expected.norms[i], 2 * tolerance * expected.norms[i]) << name << " step " << i;
      }
    }
}

// With modules of multi-token prediction, which run in the backward pass.
TEST(TrainerOnGpu, PredictsFurtherAheadAsTheCpuDoes) {
  HONE_GPU_OR_SKIP();
  for (const char* family : {"qwen3", "deepseek_v3"})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(family, " ", name_of(dtype)));
      const Json ahead = with(gpu_config(family, 64), {{"num_nextn_predict_layers", 2}, {"mtp_loss_coef", 1.0}});
      const auto fresh_model = [&] { return gpu_model(ahead, *cpu_model(ahead, dtype), dtype); };
      const Trained expected = train(cpu(), *cpu_model(ahead, dtype), "sft", in_pieces(), 1),
                    actual = train(*gpu(), *fresh_model(), "sft", in_pieces(), 1);
      const double tolerance = dtype == DType::f32 ? 1e-4 : 2e-2;
      EXPECT_NEAR(actual.losses[0], expected.losses[0], tolerance * expected.losses[0]);
      EXPECT_NEAR(actual.norms[0], expected.norms[0], 2 * tolerance * expected.norms[0]);
      EXPECT_EQ(train(*gpu(), *fresh_model(), "sft", in_pieces(), 1), actual);
      TrainerConfig full = in_pieces();
      full.recompute = "full";
      EXPECT_EQ(train(*gpu(), *fresh_model(), "sft", full, 1), actual);
    }
}

TEST(TrainerOnGpu, RecomputationHasTheSameBitsAndMicroBatchesTheSameLoss) {
  HONE_GPU_OR_SKIP();
  const Trained whole = train(*gpu(), *fresh(DType::bf16), "sft", in_pieces(), steps);
  for (const char* recompute : {"selective", "full"}) {
    TrainerConfig config = in_pieces();
    config.recompute = recompute;
    EXPECT_EQ(train(*gpu(), *fresh(DType::bf16), "sft", config, steps), whole) << recompute;
  }
  // The loss of the first step sums log-probs, which have the same bits in any packing, in another order.
  EXPECT_NEAR(train(*gpu(), *fresh(DType::bf16), "sft", in_pieces(1000), 1).losses[0], whole.losses[0], 1e-12);
}

// No step reads what the gradients' memory held before it. olmoe: with one expert a token, some have none.
TEST(TrainerOnGpu, NeedsNoZeroedGradients) {
  HONE_GPU_OR_SKIP();
  for (const char* family : {"qwen2", "gpt2", "deepseek_v3", "olmoe"})
    for (const DType dtype : {DType::bf16, DType::f32}) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(family, " ", name_of(dtype)));
      const Json of = with(gpu_config(family, 64), {{"num_experts_per_tok", 1}, {"n_group", 1}, {"topk_group", 1}});
      const auto train_from = [&](bool nan) {
        const auto model = gpu_model(of, *cpu_model(of, dtype), dtype);
        std::vector<float> grads(static_cast<size_t>(model->flat_grads().size()), nan ? NAN : 0.0f);
        gpu()->copy(model->flat_grads(), host_view(std::span(grads)));
        return train(*gpu(), *model, "sft", in_pieces(), steps);
      };
      EXPECT_EQ(train_from(true), train_from(false));
    }
}

TEST(TrainerOnGpu, ResumedIsUninterruptedBitForBit) {
  HONE_GPU_OR_SKIP();
  const TemporaryFolder folder;
  const std::vector<Sample> samples = samples_of({70, 133, 64, 90});
  const auto model = fresh(DType::bf16);
  Trainer trainer(*gpu(), *model, in_pieces());
  const auto sft = objective("sft");
  for (int i = 0; i < steps; ++i) trainer.step(pointers(samples), *sft, 0.003);
  StateSection section;
  trainer.save_state(section);
  save_model(*gpu(), *model, folder.path(), DType::bf16);
  const auto loaded = load_model(*gpu(), folder.path(), {.dtype = DType::bf16, .gradients = true});
  Trainer resumed(*gpu(), *loaded, in_pieces());
  resumed.load_state(section);
  for (int i = 0; i < steps; ++i) {
    const StepReport a = trainer.step(pointers(samples), *sft, 0.003), b = resumed.step(pointers(samples), *sft, 0.003);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  EXPECT_EQ(on_host(*gpu(), model->flat_values()), on_host(*gpu(), loaded->flat_values()));
}

TEST(TrainerOnGpu, NumbersThatAreNotFiniteLeaveTheWeights) {
  HONE_GPU_OR_SKIP();
  const auto model = fresh(DType::bf16);
  Trainer trainer(*gpu(), *model, in_pieces());
  std::vector<Sample> samples = samples_of({70, 133});
  const std::vector<float> before = on_host(*gpu(), model->flat_values());
  samples[1].columns[columns::advantage][9] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(trainer.step(pointers(samples), *objective("grpo"), 0.01), Error);
  EXPECT_EQ(on_host(*gpu(), model->flat_values()), before);
  samples[1].columns[columns::mask][9] =
      std::numeric_limits<float>::infinity();  // a linear objective: the loss is known after all work is queued
  EXPECT_THROW(trainer.step(pointers(samples), *objective("sft"), 0.01), Error);
  EXPECT_EQ(on_host(*gpu(), model->flat_values()), before);
  samples[1].columns[columns::mask][9] = 1;
  EXPECT_TRUE(std::isfinite(trainer.step(pointers(samples), *objective("sft"), 0.01).loss));
  EXPECT_NE(on_host(*gpu(), model->flat_values()), before);
}

// The first steps take the memory that later ones need, and as much as the plan predicts.
TEST(TrainerOnGpu, TakesTheMemoryThatWasPlannedAndThenNone) {
  HONE_GPU_OR_SKIP();
  for (const char* recompute : {"none", "selective", "full"}) {
    if (!chosen()) continue;
    const std::unique_ptr<Device> device = devices().at("cuda")(0), meta = devices().at("meta")(0);
    Context context(*device), planned(*meta);
    planned.plan_for(DeviceKind::cuda);
    const Json shape =
        with(gpu_config("qwen2", 128), {{"vocab_size", sized(64000, 4000)}, {"num_hidden_layers", sized(16, 2)}});
    TrainerConfig config;
    config.micro_batch_tokens = sized(8192, 512), config.recompute = recompute;
    const auto sft = objective("sft");
    std::vector<Sample> samples;
    for (int i = 0; i < sized(40, 6); ++i) samples.push_back(samples_of({512})[0]);
    size_t after_two = 0;
    {
      const auto model = make_model(shape, "test");
      model->allocate(context, DType::bf16, true);
      model->initialize(context, 1);
      Trainer trainer(context, *model, config);
      for (int i = 0; i < sized(6, 3); ++i) {
        trainer.step(pointers(samples), *sft, 0.001);
        if (i == 1) after_two = device->peak_bytes();
      }
      EXPECT_EQ(device->peak_bytes(), after_two) << recompute;
    }
    const auto model = make_model(shape, "test");
    model->allocate(planned, DType::bf16, true);
    Trainer trainer(planned, *model, config);
    trainer.step(pointers(samples), *sft, 0.001);
    const TrainerMemory memory = trainer.memory();
    const double plan = static_cast<double>(model->flat_values().bytes() + model->flat_grads().bytes() +
                                            planned.scratch().peak_bytes()) +
                        static_cast<double>(memory.optimizer + memory.activations + memory.gradients.buffers);
    constexpr double workspace = 68e6;  // workspace of cuBLASLt, which matters in a model this small
    EXPECT_LE(plan, 1.05 * static_cast<double>(after_two)) << recompute;
    EXPECT_GE(plan, 0.95 * static_cast<double>(after_two) - workspace) << recompute;
  }
}

}  // namespace
}  // namespace hone::test
