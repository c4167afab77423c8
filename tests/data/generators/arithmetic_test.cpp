#include <gtest/gtest.h>

#include <set>

#include "core/config/config.h"
#include "data/generator.h"

namespace hone {
namespace {

GeneratorSpec make(const std::string& settings) {
  GeneratorSpec spec;
  Config::from_text("kind = 'arithmetic'\n" + settings, "test").read([&](Fields& f) { spec.fields(f); });
  return spec;
}

TEST(Arithmetic, SplitsAreDisjointAndCompleteWhateverTheSeed) {
  const GeneratorSpec one = make("digits = 1\nheldout = 30\nseed = 1"),
                      two = make("digits = 1\nheldout = 30\nseed = 2");
  std::set<std::string> test, train;
  for (int64_t i = 0; i < one.generator->size("test"); ++i) test.insert(one.generator->example("test", i).prompt);
  for (int64_t i = 0; i < two.generator->size("train"); ++i) train.insert(two.generator->example("train", i).prompt);
  EXPECT_EQ(test.size(), 30u);
  EXPECT_EQ(train.size(), 70u);
  for (const std::string& prompt : test) EXPECT_FALSE(train.contains(prompt)) << prompt;
}

TEST(Arithmetic, WorkingsEndInTheAnswer) {
  const GeneratorSpec spec = make("digits = 2\nworked = 1.0");
  for (int64_t i = 0; i < 200; ++i) {
    const Example e = spec.generator->example("train", i);
    const size_t plus = e.prompt.find('+');
    EXPECT_EQ(std::stoi(e.prompt.substr(0, plus)) + std::stoi(e.prompt.substr(plus + 1)), std::stoi(e.answer));
    EXPECT_EQ(std::stoi(e.completion.substr(e.completion.rfind('=') + 1)), std::stoi(e.answer));
    EXPECT_EQ(e.completion.front(), ':');
  }
}

TEST(Arithmetic, HasteIsRightWhereNoInnerColumnCarries) {
  const GeneratorSpec spec = make("digits = 3\nworked = 0.0");
  for (int64_t i = 0; i < 500; ++i) {
    const Example e = spec.generator->example("train", i);
    const size_t plus = e.prompt.find('+');
    const int a = std::stoi(e.prompt.substr(0, plus)), b = std::stoi(e.prompt.substr(plus + 1));
    const bool carries = a % 10 + b % 10 > 9 || a / 10 % 10 + b / 10 % 10 > 9;
    EXPECT_EQ(std::stoi(e.completion.substr(e.completion.rfind('=') + 1)) == a + b, !carries)
        << e.prompt << e.completion;
  }
}

TEST(Arithmetic, RefusesAShareThatIsNone) { EXPECT_THROW(make("worked = 1.5"), Error); }

}  // namespace
}  // namespace hone
