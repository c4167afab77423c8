#pragma once
// What one sentence gives as its answer.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rewards/answers/statement.h"

namespace hone {

struct MathReading {
  // The value, as math_equal reads it: the one expression of the sentence, the last side of a chain of equalities, or a
  // list ("2 and 3").
  std::optional<std::string> value = {};
  // Words change what the sentence's expression means ("not 5", "at least 5", "5 dozen"): only the same words may equal
  // it.
  bool words_only = false;
};

enum class SentenceRole : uint8_t {
  marked,      // it follows "the answer is": the answer comes first, an explanation may follow
  conclusion,  // it ends a solution: what comes last counts, after "so" or "therefore"
};

// Whether the words beside the value parts[at] make another of it: "half of 5", "5 squared", "less than 5".
bool words_change_value(const std::vector<StatementPart>& parts, size_t at);

// Whether a word negates what follows, in English or another language, or in Chinese makes something else of a value.
bool is_negation(std::string_view word);

// Makes "3 * 4" of "3 x 4".
void times_for_x(std::string& text);

// A sentence with several values, or with alternatives, gives no single value. In "18, not 20" the first counts.
MathReading read_sentence(std::string_view sentence, const StatementOptions& options, SentenceRole role);

}  // namespace hone
