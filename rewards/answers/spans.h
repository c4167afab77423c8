#pragma once
// Finds boxes and formulas in LaTeX text. Time is linear in the text.
#include <deque>
#include <string>
#include <string_view>

namespace hone {

struct MathSpan {
  size_t begin = 0, end = 0;  // byte range with the delimiters
  size_t content_begin = 0, content_end = 0;

  std::string_view content(std::string_view text) const {
    return text.substr(content_begin, content_end - content_begin);
  }
};

// Returns the last \boxed{} and the boxes before it that form one list with it, at most `most`.
std::deque<MathSpan> find_boxes(std::string_view text, size_t most);

// Returns the last formulas of a text: $...$ on one line, $$...$$, \(...\), \[...\], and \begin{align*} and similar
// environments, whose content is the entire environment. Prices ("$18 a day and $20") are not formulas.
std::deque<MathSpan> find_formulas(std::string_view text);

// Returns true if the text between two answers makes them one list: a comma, "and", "or" and a few words at most.
bool joins_answers(std::string_view gap);

// Returns the contents of the spans as one list: "2, 3", or "2 or 3" if the text says "or". A repeated content appears
// once.
std::string joined_spans(std::string_view text, const std::deque<MathSpan>& spans);

// Returns true if the text starts with a percent sign or "percent".
bool percent_follows(std::string_view text);

}  // namespace hone
