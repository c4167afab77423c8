// Real weights, compared with the results of an independent forward pass.
#include <cmath>

#include "core/io/jsonl.h"
#include "core/io/safetensors.h"
#include "model/token_logprobs.h"
#include "tests/model/tiny_model.h"
#include "tests/support/logits.h"

namespace hone::test {
namespace {

std::vector<int32_t> ids_of(const Json& list) {
  std::vector<int32_t> out;
  for (const Json& id : list.as_array()) out.push_back(static_cast<int32_t>(id.as_int()));
  return out;
}

std::vector<float> logits_of(Context& context, Model& model, std::vector<float> hidden) {
  const int64_t width = model.shape().hidden_size, rows = static_cast<int64_t>(hidden.size()) / width;
  std::vector<float> out(static_cast<size_t>(rows * model.shape().vocab_size));
  lm_head_logits(context, model, host_view(std::span(out)).view({rows, model.shape().vocab_size}),
                 host_view(std::span(hidden)).view({rows, width}));
  return out;
}

int32_t likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

class ReferenceTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = cpu_device();
  Context context_{*device_};
};

TEST_F(ReferenceTest, Stories260K) {
  HONE_SHARED_OR_SKIP(folder, "data/weights/stories260K");
  const auto model = load_model(context_, folder);
  int forwards = 0;
  read_jsonl(folder / "reference.jsonl", [&](const Json& row, int64_t line) {
    if (row.at("kind").as_string() != "forward") return;
    ++forwards;
    const std::vector<std::vector<int32_t>> sequences{ids_of(row.at("input_ids"))};
    const JsonArray &expected = row.at("next_token_logprobs").as_array(), &last = row.at("last_logits").as_array();
    const std::vector<float> logp = compute_logprobs(context_, *model, sequences, {})[0].logp;
    ASSERT_EQ(logp.size(), expected.size() + 1);
    for (size_t t = 0; t < expected.size(); ++t)
      EXPECT_NEAR(logp[t + 1], expected[t].as_double(), 2e-4) << "line " << line << " token " << t + 1;
    const std::vector<float> logits =
        logits_of(context_, *model, hidden_of(context_, *model, {{BatchPart{sequences[0]}}}));
    const std::vector<int32_t> best = ids_of(row.at("argmax_per_position"));
    const auto logits_at = [&](size_t t) { return std::span(logits).subspan(t * 512, 512); };
    for (size_t t = 0; t < best.size(); ++t)
      EXPECT_EQ(likeliest(logits_at(t)), best[t]) << "line " << line << " token " << t;
    for (size_t i = 0; i < last.size(); ++i)
      ASSERT_NEAR(logits_at(best.size() - 1)[i], last[i].as_double(), 3e-4) << "line " << line << " logit " << i;
  });
  EXPECT_EQ(forwards, 4);
}

TEST_F(ReferenceTest, Stories260KWritesItsGreedyStory) {
  HONE_SHARED_OR_SKIP(folder, "data/weights/stories260K");
  const auto model = load_model(context_, folder);
  std::vector<int32_t> expected;
  read_jsonl(folder / "reference.jsonl", [&](const Json& row, int64_t) {
    if (row.at("kind").as_string() == "greedy") expected = ids_of(row.at("output_ids"));
  });
  ASSERT_EQ(expected.size(), 257u);
  // Each token of the story is the likeliest after the previous ones, so greedy decoding from the first one writes all
  // of them.
  const std::vector<float> logits = logits_of(context_, *model, hidden_of(context_, *model, {{BatchPart{expected}}}));
  for (size_t t = 0; t + 1 < expected.size(); ++t)
    ASSERT_EQ(likeliest(std::span(logits).subspan(t * 512, 512)), expected[t + 1]) << "token " << t + 1;
}

TEST_F(ReferenceTest, NanoGptSort) {
  HONE_SHARED_OR_SKIP(folder, "data/weights/nano_gpt_sort");
  const auto model = load_model(context_, folder);
  const SafetensorsReader file(folder / "activations.safetensors");
  const auto read = [&](const char* name) {
    std::vector<float> out(static_cast<size_t>(file.at(name).size()));
    std::memcpy(out.data(), file.at(name).data, file.at(name).bytes());
    return out;
  };
  std::vector<int32_t> ids;
  for (const float id : read("idx")) ids.push_back(static_cast<int32_t>(id));
  std::vector<BatchPart> parts;
  for (size_t s = 0; s < 3; ++s) parts.push_back({std::span(ids).subspan(s * 11, 11)});

  ScratchScope scope(context_);
  const Batch batch = pack_batch(context_, context_.scratch(), parts);
  const Tensor x = context_.scratch().take(DType::f32, {33, 48});
  const auto expect_near = [&](std::span<const float> ours, const char* name) {
    const std::vector<float> theirs = read(name);
    ASSERT_EQ(ours.size(), theirs.size()) << name;
    for (size_t i = 0; i < theirs.size(); ++i)
      ASSERT_NEAR(ours[i], theirs[i], 2e-5 + 2e-5 * std::fabs(theirs[i])) << name << " " << i;
  };
  model->embed(context_, batch, x);
  expect_near(x.as<float>(), "x");
  for (const char* name : {"block0", "block1", "block2"}) {
    model->forward_layer(name[5] - '0', context_, {.batch = batch}, x, x);
    expect_near(x.as<float>(), name);
  }
  const std::vector<float> hidden = hidden_of(context_, *model, parts);
  expect_near(hidden, "ln_f");
  expect_near(logits_of(context_, *model, hidden), "lm_head");
}

TEST_F(ReferenceTest, Bfloat16LlamaLoads) {
  HONE_SHARED_OR_SKIP(folder, "data/weights/verl_random_llama");
  const auto model = load_model(context_, folder);
  const SafetensorsReader file(folder);
  const Tensor stored = file.at("model.embed_tokens.weight");
  ASSERT_EQ(stored.dtype, DType::bf16);
  const std::span<const float> loaded = model->params()[0]->value.as<float>();
  for (size_t i = 0; i < loaded.size(); ++i) {
    bf16 value;
    std::memcpy(&value, static_cast<const char*>(stored.data) + i * sizeof(bf16), sizeof(bf16));
    ASSERT_EQ(loaded[i], to_float(value));
  }
  const std::vector<std::vector<int32_t>> sequences{{1, 2, 3, 4, 5, 6, 7, 8}};
  const std::vector<float> logp = compute_logprobs(context_, *model, sequences, {})[0].logp;
  for (size_t t = 1; t < logp.size(); ++t)
    EXPECT_NEAR(logp[t], -std::log(16.0), 1.0) << t;  // random weights: near uniform
  // bf16 to f32 and back keeps every bit.
  const TemporaryFolder saved;
  save_model(context_, *model, saved.path(), DType::bf16);
  const SafetensorsReader again(saved.path());
  ASSERT_EQ(again.names(), file.names());
  for (const std::string& name : file.names())
    EXPECT_EQ(std::memcmp(again.at(name).data, file.at(name).data, file.at(name).bytes()), 0) << name;
}

}  // namespace
}  // namespace hone::test
