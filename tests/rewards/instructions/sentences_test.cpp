// Sentence counts that NLTK's Punkt tokenizer gives.
#include "rewards/instructions/sentences.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(Sentences, Count) {
  struct Case {
    const char* text;
    size_t count;
  };
  for (const auto& [text, count] : {
           Case{"", 0},
           Case{"   ", 0},
           Case{"One sentence", 1},
           Case{"One. Two! Three?", 3},
           Case{"Mr. Smith met Dr. Jones. They talked.", 2},
           Case{"He said \"No.\" Then he left.", 2},
           Case{"It costs $3.50 today. Really.", 2},
           Case{"1. First item\n2. Second item", 3},
           Case{"Wait... what? Yes.", 2},
           Case{"Wait... The end.", 2},
           Case{"Very bad acting!!! I promise.", 2},
           Case{"(He left.) She stayed.", 2},
           Case{"In the U.S. they vote. J. Bach wrote it.", 2},
           Case{"See fig. 3, etc. and so on. Done.", 4},
           Case{"Ein Satz. Noch einer. \xff\xfe", 3},
       })
    EXPECT_EQ(count_sentences(text), count) << text;
}

}  // namespace
}  // namespace hone
