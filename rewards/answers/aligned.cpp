#include "rewards/answers/aligned.h"

#include <algorithm>
#include <vector>

#include "rewards/answers/text.h"

namespace hone {

namespace {

constexpr std::string_view begin_mark = "\\begin{", end_mark = "\\end{";
constexpr std::string_view environments[] = {"align", "gather", "equation", "eqnarray", "multline", "split", "flalign"};
constexpr std::string_view arrows[] = {"\\Rightarrow", "\\Longrightarrow", "\\implies", "\\therefore", "\\iff",
                                       "\\qquad",      "\\quad",           "\\to",      "\\nonumber",  "\\notag"};
constexpr std::string_view relations[] = {"=", "<", ">", "\\le", "\\ge", "\\ne", "\\approx", "\\equiv", "\\sim"};

bool is_one_of(const auto& set, std::string_view text) {
  return std::any_of(std::begin(set), std::end(set), [&](std::string_view one) { return text.starts_with(one); });
}

// Returns the content between \begin{name} and \end{name}; empty if the text is not such an environment.
std::string_view environment_body(std::string_view text) {
  text = trimmed(text);
  if (!text.starts_with(begin_mark) || !is_one_of(environments, text.substr(begin_mark.size()))) return {};
  const size_t end = text.rfind(end_mark), open = text.find('}');
  if (end == std::string_view::npos || open == std::string_view::npos || open >= end) return {};
  std::string_view body = text.substr(open + 1, end - open - 1);
  // The column count of alignat.
  if (text.substr(begin_mark.size()).starts_with("alignat") && body.starts_with('{'))
    body.remove_prefix(std::min(body.find('}'), body.size() - 1) + 1);
  return trimmed(body);
}

// True for "\&", but not for the "&" after "\\\\".
bool is_escaped(std::string_view text, size_t at) {
  size_t backslashes = 0;
  while (backslashes < at && text[at - 1 - backslashes] == '\\') ++backslashes;
  return backslashes % 2 == 1;
}

// Returns the rows without alignment marks, comments and arrows at their ends. Rows of a matrix stay inside their row.
std::vector<std::string> rows_of(std::string_view body) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (size_t i = 0; i < body.size(); ++i) {
    const std::string_view rest = body.substr(i);
    depth += rest.starts_with(begin_mark) ? 1 : rest.starts_with(end_mark) ? -1 : 0;
    if (depth == 0 && rest.starts_with("\\\\")) {
      out.emplace_back();
      ++i;
    } else if (depth == 0 && rest.starts_with('&') && trimmed(rest.substr(1)).starts_with("\\text")) {
      const size_t row_end = rest.find("\\\\");  // a comment
      i = row_end == std::string_view::npos ? body.size() : i + row_end - 1;
    } else if (depth > 0 || body[i] != '&' || is_escaped(body, i)) {
      out.back() += body[i] == '\n' ? ' ' : body[i];
    }
  }
  return out;
}

std::string_view without_arrows(std::string_view row) {
  for (bool found = true; found;) {
    found = false;
    row = trimmed(row);
    for (const std::string_view arrow : arrows)
      if (row.starts_with(arrow)) {
        row.remove_prefix(arrow.size());
        found = true;
      } else if (row.ends_with(arrow)) {
        row.remove_suffix(arrow.size());
        found = true;
      }
    while (!row.empty() && std::string_view(".,;").find(row.back()) != std::string_view::npos) row.remove_suffix(1);
  }
  return row;
}

// Returns true if there are letters outside of commands and \text{}.
bool holds_variable(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("\\text{")) i = std::min(text.find('}', i), text.size());
    if (i < text.size() && text[i] == '\\')
      while (i + 1 < text.size() && is_letter(text[i + 1])) ++i;
    else if (i < text.size() && is_letter(text[i]))
      return true;
  }
  return false;
}

std::vector<std::string> sides_of(std::string_view statement) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (const char c : statement) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == '=' && depth == 0)
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

bool is_plain_name(std::string_view side) {
  side = trimmed(side);
  const std::string_view letters = side.substr(0, side.find_first_of("_'("));
  return !letters.empty() && letters.size() <= 2 && std::all_of(letters.begin(), letters.end(), is_letter);
}

std::string chain_value(const std::string& statement) {
  std::vector<std::string> sides = sides_of(statement);
  const bool other = statement.find_first_of("<>!") != std::string::npos || [&] {
    return std::any_of(std::begin(relations) + 3, std::end(relations) - 1,
                       [&](std::string_view one) { return statement.find(one) != std::string::npos; });
  }();
  if (other || sides.size() < 3 || is_plain_name(sides[0]) || holds_variable(sides.back())) return statement;
  sides.erase(sides.begin());
  std::erase_if(sides, [](const std::string& side) { return holds_variable(side); });
  std::string out;
  for (const std::string& side : sides) (out += out.empty() ? "" : "=") += side;
  return out;
}

}  // namespace

std::string aligned_statement(std::string_view formula) {
  const std::string_view body = environment_body(formula);
  if (body.empty()) return std::string(formula);
  std::vector<std::string> statements;
  for (const std::string& one : rows_of(body)) {
    const std::string_view row = without_arrows(one);
    if (row.empty()) continue;
    const bool goes_on = is_one_of(relations, row) || row.starts_with('+') ||
                         (row.starts_with('-') && row.find('=') == std::string_view::npos);
    if (goes_on && !statements.empty())
      (statements.back() += " ") += row;
    else
      statements.emplace_back(row);
  }
  if (statements.empty()) return "";
  const std::string last = statements.back();
  std::string list;
  for (const std::string& statement : statements) {
    const std::vector<std::string> sides = sides_of(statement);
    const std::string_view name = trimmed(sides[0]),
                           last_name = trimmed(std::string_view(last).substr(0, last.find('=')));
    const bool value = sides.size() >= 2 && is_plain_name(name) && !holds_variable(sides.back());
    const bool used = name != last_name && last.find(name) != std::string::npos;
    if (value && name != last_name && !used) (list += statement) += ", ";
  }
  return list.empty() ? chain_value(last) : list + last;
}

}  // namespace hone
