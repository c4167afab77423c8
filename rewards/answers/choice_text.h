#pragma once
// Reads the option letter that a completion chooses in a multiple-choice question.
#include <optional>
#include <string_view>

namespace hone {

// Returns the letter of `letters` (capitals) that the completion chooses. In order of preference: a \boxed{}; a
// completion that is only the letter; the last sentence that chooses ("the answer is (B)", "B is correct", "I choose
// B", a last line "Option B"); a completion that starts with "(B)" or "B.". Returns nothing for two letters ("A or B"),
// a negated letter ("not A", "A is wrong") and the article "A".
std::optional<char> choice_answer(std::string_view completion, std::string_view letters);

}  // namespace hone
