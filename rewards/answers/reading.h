#pragma once
// Reads the answer that one sentence states.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rewards/answers/statement.h"

namespace hone {

struct MathReading {
  // The value as math_equal reads it: the single expression of the sentence, the last side of a chain of equalities, or
  // a list ("2 and 3").
  std::optional<std::string> value = {};
  // True if words change the meaning of the expression ("not 5", "at least 5", "5 dozen"). Only the same words may then
  // equal it.
  bool words_only = false;
};

enum class SentenceRole : uint8_t {
  marked,      // follows "the answer is": the answer comes first, an explanation may follow
  conclusion,  // ends a solution: the last value counts, after "so" or "therefore"
};

// Returns true if the words next to the value parts[at] change it: "half of 5", "5 squared", "less than 5".
bool words_change_value(const std::vector<StatementPart>& parts, size_t at);

// Returns true if a word negates the words after it, in English or another language. Chinese words that change a value
// ("at least", "or") count too.
bool is_negation(std::string_view word);

// Replaces the letter x between numbers by a multiplication sign: "3 x 4" becomes "3 * 4".
void times_for_x(std::string& text);

// Reads the value of a sentence. A sentence with several values or alternatives gives no single value. Of "18, not 20"
// the first counts.
MathReading read_sentence(std::string_view sentence, const StatementOptions& options, SentenceRole role);

}  // namespace hone
