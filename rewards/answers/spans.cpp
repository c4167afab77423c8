#include "rewards/answers/spans.h"

#include <algorithm>
#include <optional>

#include "core/base/check.h"
#include "rewards/answers/text.h"

namespace hone {

static constexpr size_t longest_answer = 4096, longest_gap = 40, most_spans = 64;
static constexpr std::string_view box_mark = "boxed{";

bool joins_answers(std::string_view gap) {
  if (gap.size() > longest_gap || gap.find("\n\n") != std::string_view::npos) return false;
  const std::string words = lower(gap);
  if (trimmed(words).find_first_not_of("$\\ ,;") == std::string::npos) return true;
  for (const std::string_view word : {" and", " or", "{and", "{or", "$and", "$or"}) {
    const size_t at = words.find(word);
    if (at != std::string::npos && (at + word.size() == words.size() || !is_letter(words[at + word.size()])))
      return true;
  }
  return false;
}

static std::optional<MathSpan> box_at(std::string_view text, size_t mark) {
  MathSpan out{.begin = mark > 0 ? mark - 1 : mark, .content_begin = mark + box_mark.size()};
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

// A few boxes whose bracket does not close are skipped.
std::deque<MathSpan> find_boxes(std::string_view text, size_t most) {
  std::deque<MathSpan> out;
  int open = 0;
  for (size_t at = text.rfind(box_mark); at != std::string_view::npos && at > 0 && out.size() < most && open < 16;
       at = text.rfind(box_mark, at - 1)) {
    if (text[at - 1] != '\\') continue;
    const auto span = box_at(text, at);
    if (!span) {
      ++open;
    } else {
      // A box around the previous one is not its neighbor.
      if (!out.empty() &&
          (span->end > out.front().begin || !joins_answers(text.substr(span->end, out.front().begin - span->end))))
        break;
      out.push_front(*span);
    }
  }
  return out;
}

bool percent_follows(std::string_view text) {
  text = text.substr(0, 24);
  while (!text.empty() && (text[0] == ' ' || text[0] == '$' || text[0] == '\\' || text[0] == ')'))
    text.remove_prefix(1);
  return text.starts_with('%') || text.starts_with("percent") || text.starts_with("pct");
}

// Returns true for prices, which are not formulas: "$18 a day and $20".
static bool is_prose(std::string_view content, char after) {
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

// Returns the name of the math environment that begins here: "align*"; empty if none does.
static std::string_view formula_environment(std::string_view text) {
  constexpr std::string_view begin = "\\begin{";
  constexpr std::string_view names[] = {"align",    "aligned",  "alignat",  "eqnarray", "gather",
                                        "gathered", "equation", "multline", "split",    "flalign"};
  if (!text.starts_with(begin)) return {};
  text = text.substr(begin.size(), 16);
  const std::string_view name = text.substr(0, text.find('}'));
  const std::string_view plain = name.ends_with('*') ? name.substr(0, name.size() - 1) : name;
  return std::find(std::begin(names), std::end(names), plain) != std::end(names) ? name : std::string_view();
}

std::deque<MathSpan> find_formulas(std::string_view text) {
  std::deque<MathSpan> out;
  const auto close = [&](size_t begin, size_t content, std::string_view end) {
    const size_t found = text.find(end, content);
    if (found == std::string_view::npos) return false;
    out.push_back({begin, found + end.size(), content, found});
    if (out.size() > most_spans) out.pop_front();
    return true;
  };
  // Whether a closing mark still follows. Each kind is searched once.
  bool display = true, round = true, square = true, environment = true;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      const char c = text[i + 1];
      const std::string_view name = c == 'b' && environment ? formula_environment(text.substr(i)) : std::string_view();
      if (!name.empty() && (environment = close(i, i, concat("\\end{", name, "}")))) {
        out.back().content_end = out.back().end;
        i = out.back().end;
      } else if ((c == '(' && round && (round = close(i, i + 2, "\\)"))) ||
                 (c == '[' && square && (square = close(i, i + 2, "\\]"))))
        i = out.back().end;
      else
        i += 2;
    } else if (text[i] != '$') {
      ++i;
    } else if (text.substr(i).starts_with("$$") && display && (display = close(i, i + 2, "$$"))) {
      i = out.back().end;
    } else {
      size_t end = i + 1;
      while (end < text.size() && end - i < longest_answer && text[end] != '\n' && text[end] != '$')
        end += text[end] == '\\' ? 2 : 1;
      const bool closed = end < text.size() && text[end] == '$' && end > i + 1 &&
                          !is_prose(text.substr(i + 1, end - i - 1), end + 1 < text.size() ? text[end + 1] : ' ');
      if (closed) {
        out.push_back({i, end + 1, i + 1, end});
        if (out.size() > most_spans) out.pop_front();
      }
      i = closed ? end + 1 : i + 1;
    }
  }
  return out;
}

// Returns true if the text between two answers offers either of them.
static bool offers_either(std::string_view gap) {
  const std::vector<std::string_view> words = words_of(gap);
  return std::any_of(words.begin(), words.end(), [](std::string_view word) {
    return word == "or" || word == "\\text{or}" || word == "or}" || word == "or}\\";
  });
}

std::string joined_spans(std::string_view text, const std::deque<MathSpan>& spans) {
  std::string out;
  for (size_t i = 0; i < spans.size(); ++i) {
    const std::string_view content = spans[i].content(text);
    const bool repeated = std::any_of(spans.begin(), spans.begin() + static_cast<ptrdiff_t>(i), [&](const auto& other) {
      return trimmed(other.content(text)) == trimmed(content);
    });
    if (repeated) continue;
    const bool either = i > 0 && offers_either(text.substr(spans[i - 1].end, spans[i].begin - spans[i - 1].end));
    (out += out.empty() ? "" : either ? " or " : ", ") += content;
  }
  return out;
}

}  // namespace hone
