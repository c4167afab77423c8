#pragma once
// Splits a sentence into words and mathematics: "She has 5 + 3 = 8 apples" is two words, an expression and a word.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct StatementPart {
  enum class Kind : uint8_t {
    word,
    expression,  // "5", "2x+5", "(1, 2)", "\frac{1}{2}", "x = 3", or one formula
    comma,       // ',', ';' or a dash between words
    colon,       // ':' or '=' after words
    remark,      // words in brackets, brackets included
  };
  Kind kind = Kind::word;
  size_t begin = 0, end = 0;  // byte range in the statement
  std::string word = {};      // in lower case
  bool hyphenated = false;    // a hyphen joins the word to the number before it, and it is not a unit: "18-gon"
  bool formula = false;       // the expression is one formula; begin and end delimit its content
};

struct StatementOptions {
  bool formulas = true;     // $...$, \(...\), \[...\] are mathematics
  bool expressions = true;  // numbers and signs outside of formulas are mathematics
};

// Returns the parts in order. Time is linear in the text, except for brackets that do not close.
std::vector<StatementPart> statement_parts(std::string_view text, const StatementOptions& options = {});

// Returns true if the text is only "18!!". After other words the marks are an exclamation.
bool is_double_factorial(std::string_view text);

// True for number words: "one" to "twenty" and the tens.
bool is_number_word(std::string_view word);

// Returns the end of the sentence that starts at `begin`: the end of a line, or a '.', '!' or '?' before a space. A
// sentence never ends inside a formula.
size_t sentence_end(std::string_view text, size_t begin);

}  // namespace hone
