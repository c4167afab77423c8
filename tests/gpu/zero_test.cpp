// The ZeRO stages on GPUs: with ZeRO-2 and 3, any number of ranks, on one GPU or on two, has the bits of one trainer.
#include "train/parallel/zero.h"

#include <algorithm>
#include <mutex>

#include "core/comm/launch.h"
#include "core/config/config.h"
#include "core/device/device_peers.h"
#include "tests/gpu/gpu_model.h"
#include "train/trainer.h"

namespace hone::test {
namespace {

// Lengths that fill five micro-batches of unequal size, so that ranks have unequal numbers of them.
std::vector<Sample> samples(int64_t vocab_size) {
  std::vector<Sample> out;
  for (const auto& tokens : gpu_sequences({70, 133, 64, 90, 5, 40, 201, 17}, vocab_size)) {
    Sample& sample = out.emplace_back();
    sample.tokens = tokens;
    sample.columns.assign(columns::mask, tokens.size(), 1);
    sample.columns[columns::mask][0] = 0;
  }
  return out;
}

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<float> weights;
};

Outcome train(Context& context, const Json& config, const TrainerConfig& settings, StepExchange* exchange) {
  const std::unique_ptr<Model> model = make_model(config, "test");
  model->allocate(context, DType::bf16, true);
  model->initialize(context, 7);
  Trainer trainer(context, *model, settings, exchange);
  const std::unique_ptr<Objective> objective = make_objective("sft");
  const std::vector<Sample> all = samples(model->shape().vocab_size);
  std::vector<const Sample*> batch;
  for (const Sample& sample : all) batch.push_back(&sample);
  Outcome out;
  for (int step = 0; step < 3; ++step) {
    const StepReport report = trainer.step(batch, *objective, 0.003);
    out.losses.push_back(report.loss);
    out.norms.push_back(report.grad_norm);
  }
  model->gather_values();
  out.weights = on_host(context, model->flat_values());
  return out;
}

std::vector<Outcome> train_on(const std::vector<std::string>& devices, const Json& config,
                              const TrainerConfig& settings, int64_t stage) {
  std::mutex mutex;
  std::vector<Outcome> out;
  run_ranks(devices, {.timeout = 120}, [&](const Ranks& ranks, Device& device) {
    Context context(device);
    ZeroExchange exchange(*ranks.group(), stage);
    Outcome outcome = train(context, config, settings, &exchange);
    const std::scoped_lock lock(mutex);
    out.push_back(std::move(outcome));
  });
  EXPECT_EQ(out.size(), devices.size());
  return out;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_TRUE(a.weights == b.weights);
}

void expect_ranks_equal_one(const std::vector<std::string>& devices, const Json& config,
                            const TrainerConfig& settings) {
  const Outcome one = train(*gpu(), config, settings, nullptr);
  for (const int64_t stage : {2, 3}) {
    SCOPED_TRACE(concat(devices.size(), " ranks, the last on ", devices.back(), ", ZeRO-", stage));
    for (const Outcome& outcome : train_on(devices, config, settings, stage)) expect_same(outcome, one);
  }
}

// Devices of `ranks` ranks on the first `gpus` GPUs in turn.
std::vector<std::string> devices_of(int ranks, int gpus) {
  std::vector<std::string> out;
  for (int r = 0; r < ranks; ++r) out.push_back(concat("cuda:", r % gpus));
  return out;
}

TrainerConfig trainer_config(const char* moments) {
  TrainerConfig out;
  Config::from_text(concat("moments = \"", moments, "\"\nmicro_batch_tokens = ", sized(140, 35)), "test")
      .read([&](Fields& f) { out.fields(f); });
  out.norm_piece = 256;  // even the smallest layers are divided between all ranks
  return out;
}

// gpt2: layer norms, biases, and an embedding table that is the LM head too. qwen3: norms of queries and keys.
TEST(ZeroOnGpu, RanksHaveTheBitsOfOne) {
  HONE_GPU_OR_SKIP();
  const int gpus = std::min(2, peers_of(DeviceKind::cuda)->count());
  for (const char* family : {"gpt2", "qwen2", "qwen3"})
    for (const char* moments : {"f32", "bf16"}) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(family, ", moments ", moments));
      const bool tied = std::string_view(family) == "gpt2";
      const Json config = with(gpu_config(family, 64), {{"tie_word_embeddings", tied}});
      for (const int ranks : {2, 3})
        for (int used = 1; used <= gpus; ++used)
          expect_ranks_equal_one(devices_of(ranks, used), config, trainer_config(moments));
    }
}

// Gradients that get no contribution in some micro-batches: experts without tokens. And kv_up, whose gradient is
// zeroed.
TEST(ZeroOnGpu, RanksHaveTheBitsOfOneWithIdleExperts) {
  HONE_GPU_OR_SKIP();
  const int gpus = std::min(2, peers_of(DeviceKind::cuda)->count());
  for (const char* family : {"olmoe", "deepseek_v3"}) {
    if (!chosen()) continue;
    SCOPED_TRACE(family);
    const Json config = with(gpu_config(family, 64), {{"num_experts_per_tok", 1}, {"n_group", 1}, {"topk_group", 1}});
    expect_ranks_equal_one(devices_of(3, gpus), config, trainer_config("f32"));
  }
}

// A rank sums its own gradients first.
TEST(ZeroOnGpu, Zero1RepeatsItsBits) {
  HONE_GPU_OR_SKIP();
  const Json config = gpu_config("qwen2", 64);
  const std::vector<Outcome> first = train_on(devices_of(2, 1), config, trainer_config("f32"), 1),
                             again = train_on(devices_of(2, 1), config, trainer_config("f32"), 1);
  for (const Outcome& outcome : first) expect_same(outcome, first.front());
  for (const Outcome& outcome : again) expect_same(outcome, first.front());
}

// The inner sizes of qwen2.5-0.5b: exchanges take as long as the passes beside them, so work that is not ordered shows.
TEST(ZeroOnGpu, RanksHaveTheBitsOfOneAtTheSizesOfAModel) {
  HONE_GPU_OR_SKIP();
  if (one_case_of() > 1) GTEST_SKIP() << "too large for short tests";
  const int gpus = std::min(2, peers_of(DeviceKind::cuda)->count());
  for (const bool tied : {true, false}) {
    SCOPED_TRACE(tied ? "tied" : "untied");
    const Json config = with(gpu_config("qwen2", 64), {{"tie_word_embeddings", tied},
                                                       {"vocab_size", 4099},
                                                       {"hidden_size", 896},
                                                       {"intermediate_size", 4864},
                                                       {"num_attention_heads", 14},
                                                       {"num_key_value_heads", 2},
                                                       {"num_hidden_layers", 5}});
    TrainerConfig settings = trainer_config("f32");
    settings.norm_piece = norm_piece;
    for (const int ranks : {2, 4})
      for (int used = 1; used <= gpus; ++used) expect_ranks_equal_one(devices_of(ranks, used), config, settings);
  }
}

}  // namespace
}  // namespace hone::test
