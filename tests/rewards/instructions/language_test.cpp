// Languages of texts; the verdicts of IFEval's rows are in instruction_test.cpp.
#include "rewards/instructions/language.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(Language, OfSentences) {
  struct Case {
    const char *text, *language;
  };
  for (const auto& [text, language] : {
           Case{"The quick brown fox jumps over the lazy dog and runs away from the hunters.", "en"},
           Case{"Der schnelle braune Fuchs springt über den faulen Hund und läuft davon.", "de"},
           Case{"Le renard brun saute par-dessus le chien paresseux et s'enfuit dans la forêt.", "fr"},
           Case{"La volpe marrone salta sopra il cane pigro e scappa via nella foresta.", "it"},
           Case{"Быстрая коричневая лиса прыгает через ленивую собаку и убегает в лес.", "ru"},
           Case{"सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है।", "hi"},
           Case{"모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.", "ko"},
           Case{"すべての人間は、生まれながらにして自由である。", "ja"},
           Case{"人人生而自由，在尊严和权利上一律平等。", "zh"},
           Case{"மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்", "ta"},
       })
    EXPECT_EQ(detect_language(text), language) << text;
}

TEST(Language, TextsWithoutLettersHaveNone) {
  for (const char* text : {"", "123 456", "!!! ...", "https://example.com/page"})
    EXPECT_EQ(detect_language(text), std::nullopt) << text;
}

}  // namespace
}  // namespace hone
