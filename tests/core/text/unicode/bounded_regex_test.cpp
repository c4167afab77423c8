#include "core/text/unicode/bounded_regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/check.h"

namespace hone::test {
namespace {

using Matches = std::vector<std::vector<std::string>>;

Matches all(std::string_view pattern, std::string_view text) {
  Matches out;
  BoundedRegex(pattern).each(
      text, [&](std::span<const std::string_view> groups) { out.emplace_back(groups.begin(), groups.end()); });
  return out;
}

// The expected values are those of Python's re.findall and re.finditer.
TEST(BoundedRegex, EachMatchWithItsGroupsFromLeftToRight) {
  EXPECT_EQ(all("[0-9]+", "a1 22b333"), (Matches{{"1"}, {"22"}, {"333"}}));
  EXPECT_EQ(all("(a)|(b)", "ba"), (Matches{{"b", "", "b"}, {"a", "a", ""}}));
  EXPECT_EQ(all("x", "abc"), Matches{});
  EXPECT_EQ(all("(?<=is )(.*)(?=.)", "it is so."), (Matches{{"so", "so"}}));
}

TEST(BoundedRegex, AnEmptyMatchMayFollowOneThatIsNot) {
  EXPECT_EQ(all("a*", "baac"), (Matches{{""}, {"aa"}, {""}, {""}}));
  EXPECT_EQ(all("", "ab"), (Matches{{""}, {""}, {""}}));
  EXPECT_EQ(all("a*", ""), (Matches{{""}}));
}

TEST(BoundedRegex, GivesUpAfterItsStepsAndSkipsBytesThatAreNoText) {
  const std::string hostile = std::string(60, 'a') + "b";
  const BoundedRegex exponential("(a+)+$");
  EXPECT_EQ(exponential.search(hostile), BoundedRegex::Result::gave_up);
  EXPECT_EQ(exponential.each(hostile, [](std::span<const std::string_view>) {}), BoundedRegex::Result::gave_up);
  EXPECT_EQ(all("[0-9]",
                "\xff"
                "1\x80"
                "2"),
            (Matches{{"1"}, {"2"}}));
  EXPECT_EQ(BoundedRegex("b").search("abc"), BoundedRegex::Result::found);
  EXPECT_EQ(BoundedRegex("d").search("abc"), BoundedRegex::Result::not_found);
  EXPECT_THROW(BoundedRegex("(a"), Error);
}

}  // namespace
}  // namespace hone::test
