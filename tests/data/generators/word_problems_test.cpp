#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "core/config/config.h"
#include "data/generator.h"
#include "data/generators/word_stories.h"

namespace hone {
namespace {

GeneratorSpec make(const std::string& settings) {
  GeneratorSpec spec;
  Config::from_text("kind = 'word_problems'\n" + settings, "test").read([&](Fields& f) { spec.fields(f); });
  return spec;
}

std::vector<Example> some(const GeneratorSpec& spec, const std::string& split, int64_t count) {
  std::vector<Example> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(spec.generator->example(split, i));
  return out;
}

// Checks the equations "12 + 5 = 17" of a working. Returns their number and the last result.
std::pair<int, long> check_equations(const std::string& working) {
  int count = 0;
  long last = 0;
  for (size_t at = working.find(" = "); at != std::string::npos; at = working.find(" = ", at + 1), ++count) {
    const size_t sign = working.rfind(' ', working.rfind(' ', at - 1) - 1) + 1, left = working.rfind(' ', sign - 2) + 1;
    const long a = std::stol(working.substr(left)), b = std::stol(working.substr(sign + 2));
    last = std::stol(working.substr(at + 3));
    const char op = working[sign];
    EXPECT_EQ(op == '+'                 ? a + b
              : op == '-'               ? a - b
              : op == '*'               ? a * b
              : op == '/' && a % b == 0 ? a / b
                                        : -1,
              last)
        << working;
    EXPECT_GE(last, 2) << working;
  }
  return {count, last};
}

TEST(WordProblems, WorkingsAreRightStepByStepAndEndInTheAnswer) {
  for (const int steps : {1, 2, 3}) {
    const std::string key = std::to_string(steps);
    for (const Example& e : some(make("min_steps = " + key + "\nmax_steps = " + key), "train", 600)) {
      const auto [equations, last] = check_equations(e.completion);
      EXPECT_EQ(equations, steps) << e.prompt << e.completion;
      EXPECT_EQ(std::to_string(last), e.answer);
      const std::string end = "\n#### " + e.answer;
      EXPECT_TRUE(e.completion.ends_with(end)) << e.completion;
      EXPECT_TRUE(e.prompt.ends_with("?\n")) << e.prompt;
      EXPECT_EQ((e.prompt + e.completion).find_first_of("{}[]"), std::string::npos) << e.prompt << e.completion;
    }
  }
}

// A problem must state what its working needs: every number of an equation is in the problem or is an earlier result.
TEST(WordProblems, NoWorkingKnowsMoreThanItsProblem) {
  for (const Example& e : some(make("max_number = 99"), "train", 2000)) {
    std::set<std::string> known;
    const auto collect = [&](const std::string& text) {
      for (size_t i = 0; i < text.size();) {
        size_t end = i;
        while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
        if (end > i) known.insert(text.substr(i, end - i));
        i = std::max(end, i + 1);
      }
    };
    collect(e.prompt);
    for (size_t at = e.completion.find(" = "); at != std::string::npos; at = e.completion.find(" = ", at + 1)) {
      const size_t second = e.completion.rfind(' ', at - 1) + 1, sign = e.completion.rfind(' ', second - 2) + 1;
      const size_t first = e.completion.rfind(' ', sign - 2) + 1;
      EXPECT_TRUE(known.contains(e.completion.substr(first, sign - 1 - first))) << e.prompt << e.completion;
      EXPECT_TRUE(known.contains(e.completion.substr(second, at - second))) << e.prompt << e.completion;
      known.insert(std::to_string(std::stol(e.completion.substr(at + 3))));
    }
  }
}

TEST(WordProblems, SplitsAreDisjointAcrossSeedsAndDifficulties) {
  std::set<std::string> test, train;
  for (const Example& e : some(make("max_steps = 1\nmax_number = 10"), "test", 1000)) test.insert(e.prompt);
  for (const Example& e : some(make("max_steps = 1\nmax_number = 10"), "train", 20000)) train.insert(e.prompt);
  for (const Example& e : some(make("max_steps = 3\nmax_number = 12\nseed = 5"), "train", 20000))
    train.insert(e.prompt);
  EXPECT_GT(test.size(), 900u);
  for (const std::string& prompt : test) EXPECT_FALSE(train.contains(prompt)) << prompt;
}

TEST(WordProblems, AnExampleIsAFunctionOfSeedAndIndex) {
  const GeneratorSpec one = make("seed = 1"), again = make("seed = 1\nproblems = 7"), two = make("seed = 2");
  EXPECT_EQ(one.generator->size("train"), 1000000);
  EXPECT_EQ(again.generator->size("train"), 7);
  int same = 0;
  for (int64_t i = 6; i >= 0; --i) {
    EXPECT_EQ(one.generator->example("train", i).row(), again.generator->example("train", i).row());
    EXPECT_EQ(one.generator->example("test", i).row(), two.generator->example("test", i).row());
    same += one.generator->example("train", i).prompt == two.generator->example("train", i).prompt;
  }
  EXPECT_EQ(same, 0);
}

TEST(WordProblems, HasteStatesTheAnswerAlone) {
  int worked = 0;
  for (const Example& e : some(make("worked = 0.25"), "train", 1000)) {
    if (e.completion == "#### " + e.answer) continue;
    EXPECT_NE(e.completion.find(" = "), std::string::npos);
    ++worked;
  }
  EXPECT_NEAR(worked, 250, 50);
}

// Returns true if the fixed words of a story occur in a text in their order.
bool tells(std::string_view text, std::string_view story) {
  while (!story.empty()) {
    const size_t slot = std::min(story.find('{'), story.size());
    const size_t at = text.find(story.substr(0, slot));
    if (at == std::string_view::npos) return false;
    text.remove_prefix(at + slot);
    story.remove_prefix(std::min(slot + 3, story.size()));
  }
  return true;
}

TEST(WordProblems, EveryStoryIsTold) {
  EXPECT_GE(word_stories().size(), 48u);
  const std::vector<Example> examples = some(make(""), "train", 3000);
  for (const WordStory& story : word_stories())
    EXPECT_TRUE(std::any_of(examples.begin(), examples.end(), [&](const Example& e) {
      return tells(e.prompt, story.problem);
    })) << story.problem;
}

TEST(WordProblems, RefusesWhatCannotBe) {
  for (const char* wrong : {"worked = 1.5", "min_steps = 3\nmax_steps = 2", "max_steps = 4", "max_number = 5",
                            "max_factor = 2", "problems = 0", "heldout = 0"})
    EXPECT_THROW(make(wrong), Error) << wrong;
}

}  // namespace
}  // namespace hone
