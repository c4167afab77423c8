#pragma once
// Where boxes and formulas stand in a text, in LaTeX. Time is linear in the text.
#include <deque>
#include <string>
#include <string_view>

namespace hone {

struct MathSpan {
  size_t begin = 0, end = 0;  // with its delimiters
  size_t content_begin = 0, content_end = 0;

  std::string_view content(std::string_view text) const {
    return text.substr(content_begin, content_end - content_begin);
  }
};

// Returns the last \boxed{}, with those before it that one list joins to it. At most `most`.
std::deque<MathSpan> find_boxes(std::string_view text, size_t most);

// Returns the last formulas of a text: $...$ on one line, $$...$$, \(...\), \[...\], and \begin{align*} and similar
// environments, whose content is the whole environment. Prices ("$18 a day and $20") are no formulas.
std::deque<MathSpan> find_formulas(std::string_view text);

// Whether what stands between two answers makes them one list: a comma, "and", "or" and a few words at most.
bool joins_answers(std::string_view gap);

// Returns the spans' contents as one list: "2, 3", or "2 or 3" where the text says so. What is written twice stands
// there once.
std::string joined_spans(std::string_view text, const std::deque<MathSpan>& spans);

// Whether a percent sign or "percent" follows a value.
bool percent_follows(std::string_view text);

}  // namespace hone
