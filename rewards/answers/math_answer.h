#pragma once
// Where in a completion the answer is.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct MathSources {
  bool latex = true;       // \boxed{}, $...$, \(...\), \[...\]
  bool expression = true;  // "#### 18", "the answer is 18", the value that the last sentence states
};

// Readings of the one answer that a completion gives, its value first; empty if it gives none. In order of preference:
// the last \boxed{} (neighbors joined by "and", "or" or a comma count as one list); the sentence after "####", "answer
// is" or "answer:"; the last sentence that holds mathematics. A sentence has a value only if it states one: see
// reading.h. A box whose value the text around it changes or denies gives none: see box_context.h. Time is linear in
// the text.
std::vector<std::string> extract_answer(std::string_view text, const MathSources& sources = {});

// The answer of a whole completion as math_equal reads it: what stands in <answer> or after </think>. Nothing if it
// gives none.
std::optional<std::string> math_answer(std::string_view completion, const MathSources& sources = {});

// The reference: as extract_answer where it is marked (boxed, ####, a formula in running text), otherwise whole.
std::string extract_reference(std::string_view text);

// The content of the last \boxed{...} with balanced brackets; false if there is none.
bool last_boxed(std::string_view text, std::string_view& content);

}  // namespace hone
