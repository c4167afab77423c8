#pragma once
// Finds the final answer of a completion, and compares answers that are texts of any form (a word, an expression, a
// grid).
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Returns the part of a completion that is searched for the answer: the content of the last <answer>...</answer>; else
// the text after the last </think>; else the entire text.
std::string_view answer_part(std::string_view text);

// Returns the text after the last sentence that corrects an earlier statement: "Wait, it is 6.", "No: 17." Without such
// a sentence returns the entire text.
std::string_view corrected(std::string_view text);

// Returns true if the text before a marker negates it or makes it a supposition: "The wrong answer is", "I don't think
// the answer is", "If the answer is".
bool is_marker_denied(std::string_view before);

// Returns the final answer of answer_part(), trimmed. In order of preference: the last \boxed{}; unless the part is
// tagged, the text after the last "####", "answer is" or "answer:" (the rest of the line, or all later lines if the
// rest is empty), or the last code block; the entire part. If the answer is one code block, its fences are removed.
// Time is linear in the text.
std::string_view final_answer(std::string_view text);

// Returns true if two answers are equal. Single numbers are compared by value, single words without case, lists in []
// without quotes and spaces, and other texts line by line and word by word. Quotes, dollar signs and emphasis around an
// answer and a full stop after it are ignored.
bool same_answer(std::string_view reference, std::string_view answer);

// Returns the words of each line that is not blank.
std::vector<std::vector<std::string_view>> words_by_line(std::string_view text);
// Returns the pieces between separators, each trimmed. An empty text gives one empty piece.
std::vector<std::string_view> split(std::string_view text, std::string_view separator);

}  // namespace hone
