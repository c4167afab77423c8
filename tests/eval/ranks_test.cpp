// Evaluation on several ranks: the results of one rank, for each kind of task.
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/config/config.h"
#include "eval/task.h"
#include "tests/model/characters.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

class EvalRanksTest : public ::testing::Test {
 protected:
  // Samples and result of a task, as each rank got them.
  std::vector<std::string> run(int num_ranks, const std::string& task, const std::string& rows,
                               const EvalOptions& options = {}) {
    const std::string file = folder.path() / "rows.jsonl";
    std::ofstream(file) << rows;
    std::vector<std::string> out(static_cast<size_t>(num_ranks));
    on_ranks(num_ranks, [&](const Ranks& ranks, Context& context) {
      const std::unique_ptr<Model> model = character_model(context, tokenizer);
      EvalTarget on{context, *model, tokenizer, {}, ranks};
      EvalResult result = Config::from_text("name = 't'\nfiles = ['" + file + "']\n" + task, "task.toml")
                              .as<EvalTaskSpec>()
                              .evaluate(on, options);
      result.seconds = 0;
      std::string& own = out[static_cast<size_t>(ranks.rank())];
      own = result.to_json().dump();
      for (const EvalSample& sample : result.samples) own += "\n" + sample.to_json().dump();
    });
    return out;
  }
  void expect_the_same(const std::string& task, const std::string& rows, const EvalOptions& options = {}) {
    const std::string one = run(1, task, rows, options).front();
    EXPECT_GT(one.size(), 200u);
    for (const int num_ranks : {2, 3})
      for (const std::string& of : run(num_ranks, task, rows, options)) EXPECT_EQ(of, one) << num_ranks;
  }

  TemporaryFolder folder;
  Tokenizer tokenizer = character_tokenizer(folder.path());
};

constexpr const char* questions =
    R"({"q": "ab", "choices": ["c", "a."], "gold": 1, "s": "x", "text": "abc 12", "continuation": "c"}
{"q": "1 + 2", "choices": ["3", "4", "5"], "gold": 0, "s": "y", "text": "3", "continuation": "3"}
{"q": "ab c. ab c. ab c. ab c. ab c. ab c. ab c. ab", "choices": ["c.", "b"], "gold": 0, "s": "x", "text": "a b c a b c a b c a b c a b c a b c a b c a b c a b c", "continuation": "c."}
{"q": "12", "choices": ["c", "3"], "gold": 1, "s": "y", "text": "c.c.", "continuation": "3"}
)";

TEST_F(EvalRanksTest, LikelihoodsAreThoseOfOneRank) {
  expect_the_same("kind = 'multiple_choice'\nprompt = '{q}'\nchoice = '{choice}'\nsubtask = '{s}'", questions);
  expect_the_same("kind = 'loglikelihood'\nprompt = '{q}'", questions);
}

TEST_F(EvalRanksTest, PerplexityIsThatOfOneRank) { expect_the_same("kind = 'perplexity'", questions); }

TEST_F(EvalRanksTest, CompletionsAreThoseOfOneRank) {
  EvalOptions options;
  options.samples = 3;
  expect_the_same(
      "kind = 'generate'\nprompt = '{q}'\nanswer = '{continuation}'\nreward = {kind = 'length', limit = 6, target = "
      "3}\n"
      "sampling = {max_tokens = 5}",
      questions, options);
}

TEST_F(EvalRanksTest, OneProblemOnThreeRanks) {
  const std::string one = std::string(questions).substr(0, std::string(questions).find('\n'));
  expect_the_same("kind = 'multiple_choice'\nprompt = '{q}'\nchoice = '{choice}'", one);
  expect_the_same("kind = 'perplexity'", one);
}

TEST_F(EvalRanksTest, AnErrorIsThatOfOneRank) {
  const auto error = [&](int num_ranks) {
    return error_of([&] {
      run(num_ranks, "kind = 'multiple_choice'\nprompt = '{q}'\nchoice = '{choice}'",
          R"({"q": "ab", "choices": ["c", "a"], "gold": 7})");
    });
  };
  EXPECT_NE(error(3).find(error(1)), std::string::npos) << error(3);
}

}  // namespace
}  // namespace hone::test
