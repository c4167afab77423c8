#pragma once
// The answer a completion ends in: where it stands and, where it is a text of any form (a word, an expression, a grid),
// what it is.
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Where the answer is looked for: what the last <answer>...</answer> holds; otherwise what follows the last </think>;
// otherwise all of the text.
std::string_view answer_part(std::string_view text);

// What follows the last sentence that takes back what was said: "Wait, it is 6.", "No: 17." All of the text without
// one.
std::string_view corrected(std::string_view text);

// Whether what stands before a marker denies it or only supposes it: "The wrong answer is", "I don't think the answer
// is", "If the answer is".
bool is_marker_denied(std::string_view before);

// Within that part, trimmed: the last \boxed{}; unless the part is tagged, what follows the last "####", "answer is" or
// "answer:" (the rest of that line or, where nothing more stands on it, all lines after), or the last code block; the
// whole. A code block that is all of the answer loses its fences. Time is linear in the text.
std::string_view final_answer(std::string_view text);

// The same answer, told from its form: a single number by value, one word in any case, a list in [] whatever its quotes
// and spaces; anything else line by line and word by word. Quotes, dollar signs and emphasis around the whole, and a
// full stop after it, do not count.
bool same_answer(std::string_view reference, std::string_view answer);

// The lines that hold more than spaces, each as its words.
std::vector<std::vector<std::string_view>> words_by_line(std::string_view text);
// The pieces between separators, each trimmed; one empty piece of an empty text.
std::vector<std::string_view> split(std::string_view text, std::string_view separator);

}  // namespace hone
