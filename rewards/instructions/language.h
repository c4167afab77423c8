#pragma once
// The language of a text, from the frequencies of its letter n-grams: naive Bayes over 1-, 2- and 3-grams, as
// langdetect does it (Nakatani Shuyo, "Language Detection Library for Java", 2010). IFEval's verdicts come from
// langdetect, so that its habits are kept: words in capitals count with their first letter only, and short texts are
// often misjudged. langdetect draws n-grams at random; this sums over all of them, so that equal texts get equal
// languages.
//
// Limits: Chinese is zh whatever its variant, and any text with kana is Japanese.
#include <optional>
#include <string>
#include <string_view>

namespace hone {

// Returns the code of the language (ISO 639-1), or nothing if the text has no n-gram that a profile knows.
std::optional<std::string> detect_language(std::string_view text);

}  // namespace hone
