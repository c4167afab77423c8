#include "rewards/math_extract.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "rewards/number_text.h"
#include "rewards/text.h"

namespace hone {

namespace {

constexpr size_t longest_answer = 4096, longest_gap = 40, most_joined = 64, longest_sentence = 200;
constexpr std::string_view box_mark = "boxed{";

struct Span {
  size_t begin = 0, end = 0;  // with its delimiters
  size_t content_begin = 0, content_end = 0;

  std::string_view content(std::string_view text) const { return text.substr(content_begin, content_end - content_begin); }
};

// Whether what stands between two answers makes them one list.
bool joins(std::string_view gap) {
  if (gap.size() > longest_gap || gap.find("\n\n") != std::string_view::npos) return false;
  const std::string words = lower(gap);
  if (trimmed(words).find_first_not_of("$\\ ,;") == std::string::npos) return true;
  for (const std::string_view word : {" and", " or", "{and", "{or", "$and", "$or"}) {
    const size_t at = words.find(word);
    if (at != std::string::npos && (at + word.size() == words.size() || !is_letter(words[at + word.size()]))) return true;
  }
  return false;
}

// The last span and those before it that it is joined to, as one list.
template <class Spans>
std::string joined(std::string_view text, const Spans& spans) {
  size_t first = spans.size() - 1;
  while (first > 0 && spans.size() - first < most_joined && joins(text.substr(spans[first - 1].end, spans[first].begin - spans[first - 1].end)))
    --first;
  std::string out(spans[first].content(text));
  for (size_t i = first + 1; i < spans.size(); ++i) (out += ", ") += spans[i].content(text);
  return out;
}

std::optional<Span> box_at(std::string_view text, size_t mark) {
  Span out{.begin = mark > 0 ? mark - 1 : mark, .content_begin = mark + box_mark.size()};
  int depth = 1;
  for (size_t i = out.content_begin; i < text.size() && i - out.content_begin < longest_answer; ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '{' || text[i + 1] == '}'))
      ++i;
    else if (text[i] == '{')
      ++depth;
    else if (text[i] == '}' && --depth == 0) {
      out.content_end = i;
      out.end = i + 1;
      return out;
    }
  }
  return std::nullopt;
}

// The last boxes of a text, in order; boxes whose bracket does not close are looked past a few times.
std::deque<Span> boxes(std::string_view text, size_t most) {
  std::deque<Span> out;
  int open = 0;
  for (size_t at = text.rfind(box_mark); at != std::string_view::npos && at > 0 && out.size() < most && open < 16;
       at = text.rfind(box_mark, at - 1)) {
    if (text[at - 1] != '\\') continue;
    const auto span = box_at(text, at);
    if (!span) {
      ++open;
    } else {
      if (!out.empty() && !joins(text.substr(span->end, out.front().begin - std::min(out.front().begin, span->end)))) break;
      out.push_front(*span);
    }
  }
  return out;
}

bool percent_follows(std::string_view text) {
  text = text.substr(0, 24);
  while (!text.empty() && (text[0] == ' ' || text[0] == '$' || text[0] == '\\' || text[0] == ')')) text.remove_prefix(1);
  return text.starts_with('%') || text.starts_with("percent") || text.starts_with("pct");
}

// Prices are no formulas: "$18 a day and $20".
bool is_prose(std::string_view content, char after) {
  if (!content.empty() && is_digit(content.front()) && is_digit(after)) return true;
  int words = 0;
  size_t run = 0;
  for (size_t i = 0; i <= content.size(); ++i) {
    if (i < content.size() && is_letter(content[i])) {
      ++run;
      continue;
    }
    const bool command = run < i && content[i - run - 1] == '\\', grouped = run < i && content[i - run - 1] == '{';
    if (run >= 3 && !command && !grouped) ++words;
    run = 0;
  }
  return words >= 3;
}

// The formulas of a text, the last few of them: $...$ on one line, $$...$$, \(...\), \[...\].
std::deque<Span> formulas(std::string_view text) {
  std::deque<Span> out;
  const auto close = [&](size_t begin, size_t content, std::string_view end) {
    const size_t found = text.find(end, content);
    if (found == std::string_view::npos) return false;
    out.push_back({begin, found + end.size(), content, found});
    if (out.size() > most_joined) out.pop_front();
    return true;
  };
  bool display = true, round = true, square = true;  // whether a closing mark is still to come: looked for once
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      const char c = text[i + 1];
      if ((c == '(' && round && (round = close(i, i + 2, "\\)"))) || (c == '[' && square && (square = close(i, i + 2, "\\]"))))
        i = out.back().end;
      else
        i += 2;
    } else if (text[i] != '$') {
      ++i;
    } else if (text.substr(i).starts_with("$$") && display && (display = close(i, i + 2, "$$"))) {
      i = out.back().end;
    } else {
      size_t end = i + 1;
      while (end < text.size() && end - i < longest_answer && text[end] != '\n' && text[end] != '$') end += text[end] == '\\' ? 2 : 1;
      const bool closed = end < text.size() && text[end] == '$' && end > i + 1 &&
                          !is_prose(text.substr(i + 1, end - i - 1), end + 1 < text.size() ? text[end + 1] : ' ');
      if (closed) {
        out.push_back({i, end + 1, i + 1, end});
        if (out.size() > most_joined) out.pop_front();
      }
      i = closed ? end + 1 : i + 1;
    }
  }
  return out;
}

// A number of running text in digits with a point, decimal commas too ("2,74"), with its percent sign.
std::string number_reading(std::string_view text, const NumberText& number) {
  std::string out = number.digits;
  if (number.begin > 0 && text[number.begin - 1] == ',' && number.end - number.begin != 3) {
    size_t begin = number.begin - 1;
    while (begin > 0 && is_digit(text[begin - 1]) && number.begin - begin < 20) --begin;
    const char left = begin > 0 ? text[begin - 1] : ' ';
    const std::string_view whole = text.substr(begin, number.begin - 1 - begin);
    if (!whole.empty() && left != ',' && left != '.' && !is_letter(left) && !is_digit(left))
      out = (left == '-' ? "-" : "") + std::string(whole) + "." + std::string(text.substr(number.begin, number.end - number.begin));
  }
  return percent_follows(text.substr(number.end)) ? out + "%" : out;
}

void add_number(std::vector<std::string>& out, std::string_view text, const std::optional<NumberText>& number) {
  if (!number) return;
  std::string reading = number_reading(text, *number);
  if (std::find(out.begin(), out.end(), reading) == out.end()) out.push_back(std::move(reading));
}

std::optional<std::string> boxed_reading(std::string_view text) {
  const std::deque<Span> found = boxes(text, most_joined);
  if (found.empty()) return std::nullopt;
  std::string out = joined(text, found);
  if (percent_follows(text.substr(found.back().end))) out += "\\%";
  return out;
}

std::optional<std::string> formula_reading(std::string_view text, std::deque<Span> found) {
  if (found.empty()) return std::nullopt;
  std::string out = joined(text, found);
  if (percent_follows(text.substr(found.back().end))) out += "\\%";
  return out;
}

std::optional<std::string> formula_reading(std::string_view text) { return formula_reading(text, formulas(text)); }

// After a marker the first formula counts, with those that continue its list.
std::optional<std::string> first_formula_reading(std::string_view text) {
  std::deque<Span> found = formulas(text);
  size_t count = std::min<size_t>(found.size(), 1);
  while (count < found.size() && joins(text.substr(found[count - 1].end, found[count].begin - found[count - 1].end))) ++count;
  found.resize(count);
  return formula_reading(text, std::move(found));
}

// What stands between a marker and the end of its sentence.
std::string_view sentence(std::string_view text) {
  while (!text.empty() && (is_space(text.front()) || text.front() == ':' || text.front() == '*')) text.remove_prefix(1);
  text = text.substr(0, std::min(text.find('\n'), longest_answer));
  for (size_t i = 0; i + 1 < text.size(); ++i)
    if (text[i] == '.' && text[i + 1] == ' ') return text.substr(0, i);
  return text;
}

std::vector<std::string> marked(std::string_view text, const MathSources& sources) {
  std::vector<std::string> out;
  if (const size_t at = text.rfind("####"); at != std::string_view::npos && sources.expression) {
    const std::string_view after = sentence(text.substr(at + 4));
    if (!after.empty()) out.emplace_back(after);
    add_number(out, after, first_number(after));
    return out;
  }
  const size_t at = end_of_last(text, {"answer is", "answer:", "answer**:"});
  if (at == std::string_view::npos) return out;
  const std::string_view tail = text.substr(at), after = sentence(tail);
  if (after.starts_with("not ")) return out;
  if (const auto formula = sources.latex ? first_formula_reading(after.empty() ? tail : after) : std::nullopt) return {*formula};
  if (!sources.expression || after.empty()) return out;
  out.emplace_back(after);
  add_number(out, after, first_number(after));
  return out;
}

}  // namespace

bool last_boxed(std::string_view text, std::string_view& content) {
  const std::deque<Span> found = boxes(text, 1);
  if (!found.empty()) content = found.back().content(text);
  return !found.empty();
}

std::vector<std::string> extract_answer(std::string_view text, const MathSources& sources) {
  if (sources.latex)
    if (auto boxed = boxed_reading(text)) return {std::move(*boxed)};
  std::vector<std::string> out = marked(text, sources);
  if (!out.empty()) return out;
  if (sources.latex)
    if (auto formula = formula_reading(text)) return {std::move(*formula)};
  if (!sources.expression) return out;
  const std::string_view whole = trimmed(text);
  if (whole.size() <= longest_sentence && whole.find('\n') == std::string_view::npos && !whole.empty()) out.emplace_back(whole);
  add_number(out, text, last_number(text));
  return out;
}

std::string extract_reference(std::string_view text) {
  if (auto boxed = boxed_reading(text)) return *boxed;
  if (const size_t at = text.rfind("####"); at != std::string_view::npos) return std::string(sentence(text.substr(at + 4)));
  if (auto formula = formula_reading(text)) return *formula;
  return std::string(trimmed(text));
}

}  // namespace hone
