#pragma once
// Extracts the mathematical answer of a completion or a reference.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct MathSources {
  bool latex = true;       // \boxed{}, $...$, \(...\), \[...\]
  bool expression = true;  // "#### 18", "the answer is 18", the value that the last sentence states
};

// Returns the readings of the answer that a completion gives, its value first; empty if it gives none. In order of
// preference: the last \boxed{} (neighboring boxes joined by "and", "or" or a comma count as one list); the sentence
// after "####", "answer is" or "answer:"; the last sentence that contains mathematics. A sentence has a value only if
// it states one (reading.h). A box whose value the surrounding text changes or negates gives none (box_context.h). Time
// is linear in the text.
std::vector<std::string> extract_answer(std::string_view text, const MathSources& sources = {});

// Returns the answer as math_equal reads it. The answer is searched in answer_part() of the completion: the content of
// <answer>, else the text after </think>, else all. Returns nothing if the completion gives no answer.
std::optional<std::string> math_answer(std::string_view completion, const MathSources& sources = {});

// Returns the answer in a reference: by the rules of extract_answer if it is marked (boxed, ####, a formula in running
// text), else the entire text.
std::string extract_reference(std::string_view text);

// Sets `content` to the content of the last \boxed{...} with balanced brackets. Returns false if there is none.
bool last_boxed(std::string_view text, std::string_view& content);

}  // namespace hone
