// Engines on other threads than the one that opened the devices; and one thread that uses two devices alternately, if
// the machine has two.
#include <gtest/gtest.h>

#include <thread>

#include "rollout/engine.h"
#include "tests/gpu/gpu_model.h"

namespace hone::test {
namespace {

std::vector<GenerationRequest> requests() {
  std::vector<GenerationRequest> out;
  for (const auto& prompt : gpu_sequences({5, 40, 17, 90})) {
    GenerationRequest& request = out.emplace_back();
    request.prompt = prompt, request.n = 2, request.id = out.size();
    request.sampling.max_tokens = sized(30, 5);
  }
  return out;
}

struct Driven {
  explicit Driven(Device& device) : context(device), model(make_model(gpu_config("llama", 64), "test")) {
    model->allocate(context, DType::bf16, false);
    model->initialize(context, 7);
    engine = std::make_unique<Engine>(context, *model, nullptr, EngineConfig{.kv_cache_tokens = 4096});
  }
  Context context;
  std::unique_ptr<Model> model;
  std::unique_ptr<Engine> engine;
};

void expect_same(const std::vector<std::vector<CompletionOutput>>& a,
                 const std::vector<std::vector<CompletionOutput>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t n = 0; n < a[i].size(); ++n) {
      EXPECT_FALSE(a[i][n].failed) << a[i][n].finish_reason;
      EXPECT_EQ(a[i][n].ids, b[i][n].ids);
      EXPECT_EQ(a[i][n].logp, b[i][n].logp);
    }
}

TEST(ThreadsOnGpu, AnyThreadDrivesAnyDevice) {
  HONE_GPU_OR_SKIP();
  std::unique_ptr<Device> second;
  try {
    second = devices().at("cuda")(1);
  } catch (const Error&) {  // one device: both engines use it
  }
  const auto expected = Driven(gpu()->device()).engine->generate(requests());
  Driven one(gpu()->device()), other(second ? *second : gpu()->device());
  for (Driven* driven : {&one, &other})
    std::thread([&] { expect_same(driven->engine->generate(requests()), expected); }).join();

  std::vector<std::vector<std::vector<CompletionOutput>>> got(
      2, std::vector<std::vector<CompletionOutput>>(expected.size()));
  for (const size_t which : {size_t{0}, size_t{1}})
    for (GenerationRequest& request : requests())
      (which == 0 ? one : other)
          .engine->submit(std::move(request), [&got, which](uint64_t id, std::vector<CompletionOutput> replies) {
            got[which][id - 1] = std::move(replies);
          });
  for (bool more = true; more;) {
    const bool a = one.engine->step(), b = other.engine->step();
    more = a || b;
  }
  for (const auto& replies : got) expect_same(replies, expected);
}

}  // namespace
}  // namespace hone::test
