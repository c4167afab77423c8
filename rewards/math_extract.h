#pragma once
// Where in a completion the answer is.
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct MathSources {
  bool latex = true;       // \boxed{}, $...$, \(...\), \[...\]
  bool expression = true;  // "#### 18", "the answer is 18", the last number or expression of the text
};

// Readings of the one answer a completion gives, most literal first; empty when it gives none. In order of preference: the last \boxed{}
// (neighbours joined by "and", "or" or a comma count as one list), "####", "answer is" or "answer:", the last formula, the text if it is short,
// its last number. Time is linear in the text.
std::vector<std::string> extract_answer(std::string_view text, const MathSources& sources = {});

// The reference: as extract_answer where it is marked (boxed, ####, a formula in running text), otherwise whole.
std::string extract_reference(std::string_view text);

// The content of the last \boxed{...} with balanced brackets; false if there is none.
bool last_boxed(std::string_view text, std::string_view& content);

}  // namespace hone
