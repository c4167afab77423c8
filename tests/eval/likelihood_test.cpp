// compute_likelihoods(): the bits of one pass a text, with the ids of each text encoded alone, in every kind of prompt;
// several chunks of problems; any number of threads; errors of the encoding threads.
#include "eval/likelihood.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/base/parallel_for.h"
#include "core/base/rng.h"
#include "model/token_logprobs.h"
#include "rewards/answers/text.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr const char* shape =
    R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 40, "max_position_embeddings": 48, "rms_norm_eps": 1e-6, "initializer_range": 0.5})";

// Merges cross the end of a context: "b c" is one token, and so is a word with its letters.
constexpr const char* merging_tokenizer =
    R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
  "model": {"type": "BPE", "vocab": {"<s>": 0, "a": 1, "b": 2, "c": 3, " ": 4, ".": 5, "ab": 6, "b ": 7, "b c": 8,
   "c.": 9, "abc": 10, "aa": 11}, "merges": [["b", " "], ["b ", "c"], ["a", "b"], ["c", "."], ["ab", "c"], ["a", "a"]]}})";

class LikelihoodTest : public ::testing::Test {
 protected:
  LikelihoodTest()
      : tokenizer(Tokenizer::from_json(parse_json(merging_tokenizer, "test"), "test",
                                       parse_json(R"({"bos_token": "<s>"})", "test"))) {
    model = make_model(parse_json(shape, "config.json"), "config.json");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 7);
  }

  static std::string random_text(Rng& rng, uint64_t max_length) {
    std::string out;
    for (uint64_t length = rng.below(max_length + 1); out.size() < length;) out += "aabbcc ."[rng.below(8)];
    return out;
  }
  // Problems of three subtasks with examples of their own.
  static std::vector<EvalExample> random_docs(size_t count, uint64_t max_length) {
    std::vector<EvalExample> out(count);
    for (size_t i = 0; i < count; ++i) {
      Rng rng(5, i), subtask(6, i % 3);
      out[i].where = concat("row ", i);
      out[i].subtask = concat("subtask ", i % 3);
      for (int shot = 0; shot < 2; ++shot)
        out[i].shots.push_back({random_text(subtask, max_length), random_text(subtask, 3)});
      out[i].question = random_text(rng, max_length);
    }
    return out;
  }
  static std::vector<std::vector<ContinuationText>> random_texts(size_t count) {
    std::vector<std::vector<ContinuationText>> out(count);
    for (size_t i = 0; i < count; ++i) {
      Rng rng(9, i);
      const bool shared = i % 4 == 3;  // one continuation behind several choices
      for (uint64_t c = 0; c < 2 + i % 3; ++c)
        out[i].push_back(shared ? ContinuationText{random_text(rng, 3), " c.a"}
                                : ContinuationText{"", (i % 2 ? " c" : "a") + random_text(rng, 4)});
    }
    return out;
  }

  // The ids of a text that is encoded alone, as lm-evaluation-harness does it.
  Continuation encoded_alone(const std::string& before, const std::string& continuation, int64_t max_length) const {
    Continuation out;
    const size_t end = before.find_last_not_of(" \n") + 1;
    if (end == 0) {
      out.ids = tokenizer.encode(before + continuation);
      out.ids.insert(out.ids.begin(), 0);
      out.first = 1;
    } else {
      out.ids = tokenizer.encode_document(before + continuation);
      out.first = std::clamp<size_t>(tokenizer.encode_document(before.substr(0, end)).size(), 1, out.ids.size() - 1);
    }
    while (std::ssize(out.ids) > max_length) {
      out.ids.erase(out.ids.begin());
      --out.first;
    }
    return out;
  }
  double logp(const Continuation& text) {
    const auto logps = compute_logprobs(context, *model, std::vector<std::vector<int32_t>>{text.ids}, {})[0].logp;
    double sum = 0;
    for (size_t t = text.first; t < logps.size(); ++t) sum += logps[t];
    return sum;
  }
  // By problem.
  std::vector<std::vector<double>> run(const std::vector<EvalExample>& docs,
                                       const std::vector<std::vector<ContinuationText>>& texts, EvalRun& result) {
    const PromptRenderer renderer(source, {});
    EvalTarget target{context, *model, tokenizer, engine};
    const LikelihoodJob job{
        .docs = docs, .renderer = renderer, .max_length = model->shape().max_positions + 1, .texts = [&](size_t i) {
          return texts[i];
        }};
    std::vector<std::vector<double>> out(docs.size());
    compute_likelihoods(target, job, result, [&](size_t i, ProblemLikelihoods likelihoods) {
      EXPECT_TRUE(out[i].empty());
      EXPECT_EQ(likelihoods.prompt.as_string(), renderer.task(docs[i]).prompt);
      out[i] = std::move(likelihoods.logp);
    });
    return out;
  }

  std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context{*device};
  Tokenizer tokenizer;
  std::unique_ptr<Model> model;
  PromptSource source;
  EngineConfig engine;
};

TEST_F(LikelihoodTest, HaveTheBitsOfEachTextAlone) {
  for (const uint64_t max_length : {10, 30}) {  // the longer ones are cut
    const auto docs = random_docs(40, max_length);
    const auto texts = random_texts(docs.size());
    const PromptRenderer renderer(source, {});
    std::vector<std::vector<double>> expected(docs.size());
    int64_t num_tokens = 0;
    for (size_t i = 0; i < docs.size(); ++i)
      for (const ContinuationText& text : texts[i]) {
        const Continuation one = encoded_alone(renderer.task(docs[i]).prompt + text.tail, text.continuation,
                                               model->shape().max_positions + 1);
        expected[i].push_back(logp(one));
        num_tokens += std::ssize(one.ids);
      }
    for (const int64_t batch_tokens : {1, 50, 2048}) {
      engine.max_batch_tokens = batch_tokens;
      EvalRun result;
      EXPECT_EQ(run(docs, texts, result), expected) << batch_tokens;
      EXPECT_EQ(result.num_tokens, num_tokens);
      EXPECT_EQ(result.facts.contains("cut"), max_length == 30);
    }
  }
}

TEST_F(LikelihoodTest, ManyChunksOnAnyNumberOfThreadsGiveTheSameBits) {
  const auto docs = random_docs(700, 8);
  const auto texts = random_texts(docs.size());
  const int threads = num_threads();
  std::vector<std::vector<std::vector<double>>> results;
  for (const int count : {1, 2, 4}) {
    set_num_threads(count);
    EvalRun result;
    results.push_back(run(docs, texts, result));
  }
  set_num_threads(threads);
  for (const auto& problem : results[0]) EXPECT_FALSE(problem.empty());
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST_F(LikelihoodTest, AnErrorNamesTheRow) {
  auto docs = random_docs(300, 8);
  auto texts = random_texts(docs.size());
  texts[280] = {{"", "a"}, {"", std::string(60, '.')}};
  EvalRun result;
  const std::string message = error_of([&] { run(docs, texts, result); });
  EXPECT_TRUE(message.starts_with("row 280: the continuation has ")) << message;
  EXPECT_TRUE(message.ends_with(" tokens; the model takes 49")) << message;
}

TEST_F(LikelihoodTest, AnEmptyContinuationIsAnErrorOrTheContextsLastToken) {
  EvalRun result;
  EvalExample bare;
  bare.where = "row 0";
  EXPECT_EQ(error_of([&] { run({bare}, {{{"", ""}, {"", "a"}}}, result); }), "row 0: '' has no tokens");
  EvalExample full = bare;
  full.question = "a.";
  EXPECT_EQ(run({full}, {{{"", ""}}}, result)[0][0], logp({{1, 5}, 1}));
}

TEST_F(LikelihoodTest, NoProblemsGiveNoLikelihoods) {
  EvalRun result;
  EXPECT_TRUE(run({}, {}, result).empty());
  EXPECT_EQ(result.num_tokens, 0);
}

}  // namespace
}  // namespace hone::test
