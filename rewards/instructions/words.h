#pragma once
// Words of an English text, as IFEval counts them.
#include <cstddef>
#include <string_view>

namespace hone {

// Runs of letters, digits and underscores: Python's \w+.
size_t count_words(std::string_view text);

// Words in capitals among those of NLTK's word_tokenize, which splits contractions ("CAN'T" is CA and N'T), quotes,
// dashes and most punctuation off, and keeps hyphenated words whole.
size_t count_capital_words(std::string_view text);

}  // namespace hone
