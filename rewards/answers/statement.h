#pragma once
// A sentence as a model writes it, cut into words and mathematics: "She has 5 + 3 = 8 apples" is two words, an
// expression and a word.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct StatementPart {
  enum class Kind : uint8_t {
    word,
    expression,  // numbers, letters and signs that belong together: "5", "2x+5", "(1, 2)", "\frac{1}{2}", "x = 3"; or
                 // one formula
    comma,       // ',', ';' or a dash between words
    colon,       // ':' or '=' after words
    remark,      // words in brackets, with the brackets
  };
  Kind kind = Kind::word;
  size_t begin = 0, end = 0;  // in the statement
  std::string word = {};      // in lower case
  bool hyphenated = false;    // a word that a hyphen ties to the number before it, and that is no unit: "18-gon"
  bool formula = false;       // the expression is one formula; begin and end are those of its content
};

struct StatementOptions {
  bool formulas = true;     // $...$, \(...\), \[...\] are mathematics
  bool expressions = true;  // so are numbers and signs outside of formulas
};

// Returns the parts in order. Time is linear in the text, but for brackets that do not close.
std::vector<StatementPart> statement_parts(std::string_view text, const StatementOptions& options = {});

// Words for numbers: "one" to "twenty", the tens.
bool is_number_word(std::string_view word);

// Returns the end of the sentence that starts at `begin`: at a line's end, or after '.', '!' or '?' and a space. A
// formula is not cut.
size_t sentence_end(std::string_view text, size_t begin);

}  // namespace hone
