#include "rewards/answers/math_answer.h"

#include <algorithm>
#include <optional>

#include "core/base/check.h"
#include "rewards/answers/answer_text.h"
#include "rewards/answers/box_context.h"
#include "rewards/answers/reading.h"
#include "rewards/answers/spans.h"
#include "rewards/answers/statement.h"
#include "rewards/answers/text.h"

namespace hone {

namespace {

constexpr size_t longest_answer = 4096, longest_sentence = 200, most_spans = 64;

std::string content_of(std::string_view text, const std::deque<MathSpan>& boxes) {
  std::string out = joined_spans(text, boxes);
  if (percent_follows(text.substr(boxes.back().end))) out += "\\%";
  return out;
}

// Returns nothing if there is no box. If the surrounding text changes a box's value, the list is empty.
std::optional<std::vector<std::string>> boxed_readings(std::string_view text) {
  const auto found = find_boxes(text, most_spans);
  if (found.empty()) return std::nullopt;
  const bool changed = std::any_of(found.begin(), found.end(), [&](const MathSpan& box) {
    return changes_box_value(text, box) || denies_box(text, box);
  });
  if (changed) return std::vector<std::string>();
  return std::vector<std::string>{
      with_multiplier(content_of(text, found), text.substr(found.back().end, longest_sentence))};
}

// Returns the last formula and the formulas before it that form one list with it.
std::optional<std::string> formula_reading(std::string_view text) {
  auto found = find_formulas(text);
  if (found.empty()) return std::nullopt;
  size_t first = found.size() - 1;
  while (first > 0 && joins_answers(text.substr(found[first - 1].end, found[first].begin - found[first - 1].end)))
    --first;
  found.erase(found.begin(), found.begin() + static_cast<ptrdiff_t>(first));
  std::string out = joined_spans(text, found);
  if (percent_follows(text.substr(found.back().end))) out += "\\%";
  return out;
}

// Returns the sentence after a marker.
std::string_view marked_sentence(std::string_view text) {
  while (!text.empty() && (is_space(text.front()) || text.front() == ':' || text.front() == '*')) text.remove_prefix(1);
  text = text.substr(0, longest_answer);
  return trimmed(text.substr(0, sentence_end(text, 0)));
}

// Returns the text after "####" or the last "answer is"; empty if there is no marker.
std::string_view marked_answer(std::string_view text, const MathSources& sources) {
  size_t at = sources.expression ? text.rfind("####") : std::string_view::npos;
  at = at == std::string_view::npos
           ? end_of_last(text, {"answer is", "answer:", "answer**:", "答案是", "答案为", "答案：", "答案:"})
           : at + 4;
  if (at == std::string_view::npos || is_marker_denied(text.substr(0, at))) return {};
  const std::string_view sentence = marked_sentence(text.substr(at));
  // After "The answer is as follows:" the answer is on the next lines.
  if (!sentence.ends_with(':')) return sentence;
  const std::string_view next =
      marked_sentence(text.substr(static_cast<size_t>(sentence.data() + sentence.size() - text.data())));
  return next.empty() ? sentence : next;
}

// Returns the last sentence that contains mathematics; empty if there is none.
std::string_view last_sentence(std::string_view text, const MathSources& sources) {
  const auto formulas = sources.latex ? find_formulas(text) : std::deque<MathSpan>();
  size_t mark = formulas.empty() ? std::string_view::npos : formulas.back().end - 1;
  const size_t last_sign = sources.expression ? text.find_last_of("0123456789\\") : std::string_view::npos;
  if (last_sign != std::string_view::npos && (mark == std::string_view::npos || last_sign > mark)) mark = last_sign;
  if (mark == std::string_view::npos) return {};
  // Back to the start of a line outside of a formula, then forward sentence by sentence.
  size_t begin = !formulas.empty() && mark < formulas.back().end ? formulas.back().begin : mark;
  for (const size_t from = begin; begin > 0 && text[begin - 1] != '\n' && from - begin < longest_answer;) --begin;
  text = text.substr(begin, mark - begin + longest_answer);
  mark -= begin;
  for (size_t end; (end = sentence_end(text, 0)) <= mark; mark -= end + 1) {
    if (end >= mark) break;
    text.remove_prefix(end + 1);
  }
  return trimmed(text.substr(0, std::min(sentence_end(text, 0), longest_answer)));
}

// Removes the "!" that ends a sentence outside of mathematics.
std::string_view without_closing_mark(std::string_view sentence) {
  std::string_view out = sentence;
  while (!out.empty() && std::string_view(" *\"'").find(out.back()) != std::string_view::npos) out.remove_suffix(1);
  if (!out.ends_with('!')) return sentence;
  while (out.ends_with('!')) out.remove_suffix(1);
  return out;
}

// "2,74" may be a decimal number.
std::string with_decimal_point(std::string text) {
  const size_t comma = text.find(',');
  const bool digits = text.find_first_not_of("-0123456789,") == std::string::npos;
  if (!digits || comma == std::string::npos || comma == 0 || text.rfind(',') != comma || text.size() - comma - 1 == 3)
    return "";
  text[comma] = '.';
  return text;
}

// Rewrites "$5" outside of formulas as "\$5", five dollars.
std::string with_dollars(std::string_view sentence, const MathSources& sources) {
  auto formulas = sources.latex ? find_formulas(sentence) : std::deque<MathSpan>();
  std::string out;
  for (size_t i = 0; i < sentence.size(); ++i) {
    if (!formulas.empty() && formulas.front().begin == i) {
      out += sentence.substr(i, formulas.front().end - i);
      i = formulas.front().end - 1;
      formulas.pop_front();
      continue;
    }
    const bool price =
        sentence[i] == '$' && i + 1 < sentence.size() && (is_digit(sentence[i + 1]) || sentence[i + 1] == '.');
    if (price && (i == 0 || (sentence[i - 1] != '\\' && sentence[i - 1] != '$'))) out += '\\';
    out += sentence[i];
  }
  return out;
}

// Returns the readings of a sentence: its value, then its text.
std::vector<std::string> readings(std::string_view text, const MathSources& sources, SentenceRole role,
                                  bool is_entire_text) {
  std::vector<std::string> out;
  const std::string sentence = with_dollars(text, sources);
  // A question states nothing.
  if (sentence.ends_with('?')) return {concat("\\text{", sentence, "}")};
  MathReading reading = read_sentence(sentence, {.formulas = sources.latex, .expressions = sources.expression}, role);
  if (reading.value && !reading.value->empty()) out.push_back(std::move(*reading.value));
  if (std::string decimal = out.empty() ? "" : with_decimal_point(out.front()); !decimal.empty())
    out.push_back(std::move(decimal));
  if (!sources.expression || !is_entire_text || sentence.empty()) return out;
  const std::string_view said = without_closing_mark(sentence);
  std::string all = reading.words_only ? concat("\\text{", said, "}") : std::string(said);
  // The text "5!" is a reading too, since the reference may be that text.
  if (said.size() < sentence.size()) out.push_back(concat("\\text{", sentence, "}"));
  if (std::find(out.begin(), out.end(), all) == out.end()) out.push_back(std::move(all));
  return out;
}

}  // namespace

bool last_boxed(std::string_view text, std::string_view& content) {
  const auto found = find_boxes(text, 1);
  if (!found.empty()) content = found.back().content(text);
  return !found.empty();
}

std::vector<std::string> extract_answer(std::string_view text, const MathSources& sources) {
  if (sources.latex)
    if (auto boxed = boxed_readings(text)) return std::move(*boxed);
  const std::string_view all = trimmed(text);
  if (sources.expression && is_double_factorial(all)) return {std::string(all)};
  text = corrected(text);
  if (const std::string_view marked = marked_answer(text, sources); !marked.empty())
    return readings(marked, sources, SentenceRole::marked, true);
  const std::string_view sentence = last_sentence(text, sources);
  const bool is_entire_text = all.size() <= longest_sentence && all.find('\n') == std::string_view::npos;
  if (sentence.empty())
    return readings(is_entire_text ? all : sentence, sources, SentenceRole::conclusion, is_entire_text);
  // Several sentences are not an answer; one closing full stop is allowed.
  return readings(sentence, sources, SentenceRole::conclusion, is_entire_text && sentence.size() + 1 >= all.size());
}

std::optional<std::string> math_answer(std::string_view completion, const MathSources& sources) {
  std::vector<std::string> out = extract_answer(answer_part(completion), sources);
  return out.empty() ? std::nullopt : std::optional(std::move(out.front()));
}

std::string extract_reference(std::string_view text) {
  if (const auto boxes = find_boxes(text, most_spans); !boxes.empty()) return content_of(text, boxes);
  if (const size_t at = text.rfind("####"); at != std::string_view::npos)
    return std::string(marked_sentence(text.substr(at + 4)));
  if (auto formula = formula_reading(text)) return *formula;
  return std::string(trimmed(text));
}

}  // namespace hone
