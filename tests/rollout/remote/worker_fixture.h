#pragma once
// WorkerFixture: workers of a tiny model on real sockets, a pool of them, and the engine's own completions to compare.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "rollout/remote/worker.h"
#include "rollout/remote/worker_pool.h"
#include "tests/rollout/byte_model.h"
#include "tests/rollout/tiny_engine.h"

namespace hone::test {

using Completions = std::vector<std::vector<CompletionOutput>>;

class WorkerFixture : public ::testing::Test {
 protected:
  void use(const Json& config, const LoraConfig& lora = {}) {
    model = make_model(config, "test");
    if (lora.r > 0) model->add_lora(lora);
    model->allocate(context, DType::f32, false);
    model->initialize(context, 5);
  }
  // A model whose values take `count` chunks.
  void use_chunks(int64_t count, int64_t intermediate_size) {
    Json config = tiny.model->config();
    for (const auto& [name, value] :
         {std::pair{"hidden_size", int64_t{256}}, {"intermediate_size", intermediate_size}, {"head_dim", int64_t{64}}})
      config.set(name, value);
    use(config);
    ASSERT_EQ(WeightLayout::of(*model).num_chunks(), count);
  }
  void use_two_chunks() { use_chunks(2, 512); }
  void use_adapters() {
    use(tiny.model->config(), {.r = 2});
    change(1);
  }
  // Changes the trained values.
  void change(uint64_t seed) {
    Rng random(seed, 3);
    for (float& value : model->trainable_values().as<float>()) value += static_cast<float>(0.05 * random.normal());
  }
  void start(WorkerConfig config = {}) {
    config.http.port = 0;
    workers.push_back(std::make_unique<Worker>(*device, config));
  }
  static std::string url(int64_t port) { return concat("http://127.0.0.1:", port); }

  WorkerSetup setup(const std::string& run = "/run") const {
    WorkerSetup out{.run = run,
                    .model = model->config(),
                    .lora = {},
                    .engine = engine,
                    .tokenizer = tokenizer_files(tiny.tokenizer)};
    if (model->lora()) out.lora = model->lora()->config;
    return out;
  }
  std::shared_ptr<const WeightSnapshot> snapshot(int64_t version) {
    const Tensor all = model->flat_values(), trained = model->trainable_values();
    auto bytes = std::make_shared<Buffer>(*device, trained.bytes());
    std::memcpy(bytes->data(), trained.data, trained.bytes());
    const Tensor frozen(all.data, DType::u8, all.device, {WeightLayout::of(*model).frozen_bytes});
    return std::make_shared<const WeightSnapshot>(version, *device, bytes,
                                                  std::make_shared<WeightChunks>(*device, frozen), host);
  }
  std::unique_ptr<WorkerPool> pool(const std::vector<int64_t>& ports, double timeout = 20,
                                   const std::string& key_file = "") {
    WorkerPoolConfig config{
        .workers = {}, .worker_key_file = key_file, .worker_timeout = timeout, .weight_transport = transport};
    config.worker_request_timeout = request_timeout;
    for (const int64_t port : ports) config.workers.push_back(url(port));
    return std::make_unique<WorkerPool>(config, setup(), *device,
                                        [this](int64_t version) { return snapshot(version); });
  }

  // Requests of all kinds.
  static std::vector<GenerationRequest> requests(uint64_t count = 12) {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < count; ++i) {
      GenerationRequest& request = out.emplace_back();
      request.prompt = byte_ids(std::string(2 + i * 5 % 23, static_cast<char>('a' + i % 3)));
      request.n = 1 + static_cast<int64_t>(i % 3);
      request.id = i | (i % 2 << 63);
      SamplingParams& sampling = request.sampling;
      sampling.temperature = i % 5 == 4 ? 0 : 1.1;
      sampling.max_tokens = 3 + static_cast<int64_t>(i * 7 % 30);
      sampling.seed = 9;
      if (i % 4 == 1) sampling.stop = {"a", "1"};
      if (i % 4 == 2) sampling.thinking_budget = 2, sampling.thinking_end = "</t>";
      if (i % 4 == 3) request.top_logprobs = 3, request.prompt_logprobs = true;
      if (i % 6 == 5) sampling.logit_bias = {{.id = 65, .bias = 3.5}}, sampling.repetition_penalty = 1.3;
    }
    return out;
  }
  Completions expected(const std::vector<GenerationRequest>& submitted, int64_t version) {
    Engine own(context, *model, &tiny.tokenizer, engine);
    own.set_policy_version(version);
    return own.generate(submitted);
  }
  static Completions generate(WorkerPool& from, const std::vector<GenerationRequest>& submitted) {
    Completions out(submitted.size());
    for (size_t i = 0; i < submitted.size(); ++i)
      from.submit(submitted[i], [&, i](uint64_t id, std::vector<CompletionOutput> completions) {
        EXPECT_EQ(id, submitted[i].id);
        EXPECT_TRUE(out[i].empty()) << "finished twice";
        out[i] = std::move(completions);
      });
    while (from.step()) {}
    return out;
  }
  static void expect_bits(const Completions& got, const Completions& want) {
    expect_same(got, want);
    for (size_t i = 0; i < got.size(); ++i)
      for (size_t r = 0; r < got[i].size(); ++r) EXPECT_EQ(got[i][r].versions, want[i][r].versions);
  }

  TinyModel tiny;
  std::unique_ptr<Device> device = devices().at("cpu")(0);
  std::shared_ptr<BufferPool> host = std::make_shared<BufferPool>(*device, MemoryKind::pinned);
  Context context{*device};
  std::unique_ptr<Model> model = [this] {
    std::unique_ptr<Model> out = make_model(tiny.model->config(), "test");
    out->allocate(context, DType::f32, false);
    out->initialize(context, 5);
    return out;
  }();
  EngineConfig engine{.kv_cache_tokens = 2048, .max_batch_tokens = 64};
  std::string transport = "stream";
  double request_timeout = 3600;
  std::vector<std::unique_ptr<Worker>> workers;
};

}  // namespace hone::test
