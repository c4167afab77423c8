// Answer filters and exact_match as lm-evaluation-harness's.
#include "eval/extraction.h"

#include <gtest/gtest.h>

#include "core/config/config.h"

namespace hone::test {
namespace {

template <class T>
T prepared(const std::string& toml, const std::string& file) {
  T out = Config::from_text(toml, file).as<T>();
  out.prepare();
  return out;
}
AnswerFilter filter(const std::string& toml) { return prepared<AnswerFilter>(toml, "filter.toml"); }
const std::string strict = R"(pattern = '#### (\-?[0-9\.\,]+)')",
                  flexible = "group_select = -1\npattern = '(-?[$0-9.,]{2,})|(-?[0-9]+)'";

TEST(AnswerFilter, StrictReadsTheFirstMarkedNumber) {
  EXPECT_EQ(filter(strict).extract("so 3 + 4\n#### 1,234.5 and #### 7"), "1,234.5");
  EXPECT_EQ(filter(strict).extract("#### -12"), "-12");
  EXPECT_EQ(filter(strict).extract("####12"), "[invalid]");
  EXPECT_EQ(filter(strict).extract("the answer is 12"), "[invalid]");
  EXPECT_EQ(filter(strict).extract(""), "[invalid]");
}

TEST(AnswerFilter, FlexibleReadsTheLastNumber) {
  EXPECT_EQ(filter(flexible).extract("3 apples cost $1,200."), "$1,200.");
  EXPECT_EQ(filter(flexible).extract("first 12 then 5"), "5");
  EXPECT_EQ(filter(flexible).extract("none..."), "...");  // as in the harness
  EXPECT_EQ(filter(flexible).extract("none"), "[invalid]");
}

TEST(AnswerFilter, WithoutGroupsTheWholeMatchCountsAndLookaroundsDoNot) {
  EXPECT_EQ(filter("pattern = '[a-c]+'\ngroup_select = 1").extract("xab yc"), "c");
  EXPECT_EQ(filter("pattern = '[a-c]+'\ngroup_select = 2").extract("xab yc"), "[invalid]");
  EXPECT_EQ(filter("pattern = '[a-c]+'\ngroup_select = -3\nfallback = 'no'").extract("xab yc"), "no");
  EXPECT_EQ(filter("pattern = '(?<=the answer is )(.*)(?=.)'").extract("So the answer is (B).\n"), "(B)");
  EXPECT_EQ(filter("name = 'whole'").extract(" as it is "), " as it is ");
}

TEST(AnswerFilter, EndsOnHostileTextAndErrorsOfPatternsNameTheKey) {
  EXPECT_EQ(filter("pattern = '(a+)+$'").extract(std::string(100, 'a') + "b"), "[invalid]");
  EXPECT_EQ(filter(strict).extract("\xff\xfe#### 5\x80"), "5");
  try {
    filter("pattern = '(a'");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("filter.toml:1"), std::string::npos) << error.what();
  }
}

ExactMatch gsm8k_match() {
  return prepared<ExactMatch>(R"(ignore_case = true
    regexes_to_ignore = [',', '\$', '(?s).*#### ', '\.$'])",
                              "match.toml");
}

TEST(ExactMatch, IgnoresWhatTheOptionsSay) {
  const ExactMatch match = gsm8k_match();
  EXPECT_TRUE(match("$1,200.", "many words\n#### 1200"));
  EXPECT_TRUE(match("Yes", "yes"));
  EXPECT_FALSE(match("12.5", "125"));
  const ExactMatch bare = prepared<ExactMatch>("ignore_punctuation = true", "match.toml");
  EXPECT_TRUE(bare("(B)", "B"));
  EXPECT_FALSE(bare("b", "B"));
}

}  // namespace
}  // namespace hone::test
