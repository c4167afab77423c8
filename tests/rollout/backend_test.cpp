// LocalBackend's metrics.
#include "rollout/backend.h"

#include <gtest/gtest.h>

#include "tests/rollout/byte_model.h"

namespace hone::test {
namespace {

TEST(LocalBackend, MetricsAreSinceTheLastCall) {
  TinyModel tiny;
  LocalBackend sampler(tiny.context, *tiny.model, tiny.tokenizer, {.prefix_caching = false});
  const auto draw = [&](int64_t tokens) {
    sampler.submit({.prompt = {65, 66, 67},
                    .n = 2,
                    .id = 1,
                    .sampling = {.max_tokens = tokens, .ignore_eos = true, .stop = {}, .stop_ids = {}}},
                   [](uint64_t, const std::vector<CompletionOutput>&) {});
    while (sampler.step()) {}
    return sampler.metrics();
  };
  for (const int64_t tokens : {5, 7}) {
    const Metrics metrics = draw(tokens);
    EXPECT_EQ(metrics.at("rollout/generated_tokens"), 2 * tokens);
    EXPECT_EQ(metrics.at("rollout/prompt_tokens"), 3);
  }
  for (const auto& [name, value] : sampler.metrics()) EXPECT_EQ(value, 0) << name;
}

}  // namespace
}  // namespace hone::test
