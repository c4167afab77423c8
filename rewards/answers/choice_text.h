#pragma once
// The letter that a completion chooses among the options of a question.
#include <optional>
#include <string_view>

namespace hone {

// Returns the one letter of `letters` (capitals) that the completion decides for, in this order: a \boxed{}; a
// completion that is the letter; the last sentence that decides ("the answer is (B)", "B is correct", "I choose B", a
// last line "Option B"); a completion that starts with "(B)" or "B.". Nothing for two letters ("A or B"), a letter that
// is denied ("not A", "A is wrong") and the article "A".
std::optional<char> choice_answer(std::string_view completion, std::string_view letters);

}  // namespace hone
