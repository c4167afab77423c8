// Word counts of Python's \w+ and of NLTK's word_tokenize.
#include "rewards/instructions/words.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(Words, Count) {
  EXPECT_EQ(count_words(""), 0U);
  EXPECT_EQ(count_words("don't stop-me now_1"), 5U);
  EXPECT_EQ(count_words("naïve café"), 2U);
  EXPECT_EQ(count_words("नमस्ते"), 2U);  // a vowel sign or a virama is no word character, as in Python
}

TEST(Words, InCapitals) {
  EXPECT_EQ(count_capital_words("HELLO world, THE End"), 2U);
  EXPECT_EQ(count_capital_words("WELL-KNOWN A1 I 123"), 3U);
  EXPECT_EQ(count_capital_words("CAN'T JOHN'S CANNOT GONNA"), 8U);
  EXPECT_EQ(count_capital_words("ONE,TWO 1,000 (THREE)*FOUR* \"FIVE\" SIX--SEVEN U.S.A."), 8U);
}

}  // namespace
}  // namespace hone
