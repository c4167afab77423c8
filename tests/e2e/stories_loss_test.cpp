// The real stories260K weights on held-out stories: nats per token from text through tokenizer and model.
#include <gtest/gtest.h>

#include "core/io/jsonl.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/token_logprobs.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

TEST(Stories, NatsPerTokenOfTheFirstSixtyStories) {
  HONE_SHARED_OR_SKIP(data, "data");
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  const auto folder = data / "weights" / "stories260K";
  const auto model = load_model(context, folder);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  check_tokenizer(*model, tokenizer);
  Json expected;
  read_jsonl(folder / "reference.jsonl", [&](const Json& row, int64_t) {
    if (row.at("kind").as_string() == "val_nll") expected = row;
  });
  const auto longest = static_cast<size_t>(expected.at("truncate_tokens").as_int());
  std::vector<std::vector<int32_t>> stories;
  read_jsonl(data / "pretrain" / "tinystories_val.jsonl", [&](const Json& row, int64_t) {
    if (stories.size() == 60) return;
    std::vector<int32_t> ids{*tokenizer.bos()};
    for (const int32_t id : tokenizer.encode(row.at("text").as_string())) ids.push_back(id);
    if (ids.size() > longest) ids.resize(longest);
    stories.push_back(ids);
  });
  double nats = 0;
  int64_t tokens = 0;
  for (const TokenLogprobs& scores : compute_logprobs(context, *model, stories, {})) {
    for (const float logp : scores.logp) nats -= logp;
    tokens += static_cast<int64_t>(scores.logp.size()) - 1;
  }
  EXPECT_EQ(tokens, expected.at("tokens").as_int());
  EXPECT_NEAR(nats / static_cast<double>(tokens), expected.at("mean_nll").as_double(), 1e-4);
}

}  // namespace
}  // namespace hone::test
