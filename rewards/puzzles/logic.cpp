// Judges for puzzles of logic and graphs: propositional_logic, graph_color.
#include <algorithm>
#include <bitset>
#include <optional>
#include <utility>

#include "rewards/answers/answer_text.h"
#include "rewards/answers/text.h"
#include "rewards/puzzles/puzzle.h"

namespace hone {

namespace {

constexpr size_t most_variables = 10, longest_formula = 4096;
constexpr int deepest = 64;

// A formula as its truth table: bit i is its value if variable v has bit v of i. An operation on formulas is one on
// tables.
using Truth = std::bitset<size_t{1} << most_variables>;

// formula = levels of binary operators, loosest first, each left-associative (↔, →, ∨, ∧), over ¬ and brackets. These
// are reasoning-gym's rules.
class Formula {
 public:
  Formula(std::string_view text, const std::string& variables) : text_(text), variables_(variables) {}
  std::optional<Truth> truth() {
    if (text_.size() > longest_formula) return std::nullopt;
    const Truth out = level(0);
    spaces();
    return failed_ || at_ < text_.size() ? std::nullopt : std::optional(out);
  }
  size_t num_operators = 0;

 private:
  void spaces() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool take(std::initializer_list<std::string_view> spellings) {
    spaces();
    for (const std::string_view spelling : spellings)
      if (text_.substr(at_).starts_with(spelling)) return at_ += spelling.size(), true;
    return false;
  }
  Truth level(int depth) {
    if (depth == 4) return unary();
    Truth left = level(depth + 1);
    while (!failed_) {
      const bool there = depth == 0   ? take({"↔", "<->", "<=>"})
                         : depth == 1 ? take({"→", "->", "=>"})
                         : depth == 2 ? take({"∨", "||", "|"})
                                      : take({"∧", "&&", "&"});
      if (!there) break;
      ++num_operators;
      const Truth right = level(depth + 1);
      left = depth == 0 ? ~(left ^ right) : depth == 1 ? ~left | right : depth == 2 ? left | right : left & right;
    }
    return left;
  }
  Truth unary() {
    Truth out;
    if (++nested_ > deepest) failed_ = true;
    if (failed_) return out;
    if (take({"¬", "~", "!"})) {
      ++num_operators;
      out = ~unary();
    } else if (take({"("})) {
      out = level(0);
      if (!take({")"})) failed_ = true;
    } else {
      spaces();
      const size_t v = at_ < text_.size() ? variables_.find(text_[at_++]) : std::string::npos;
      if (v == std::string::npos) failed_ = true;
      for (size_t i = 0; !failed_ && i < out.size(); ++i) out[i] = (i >> v & 1) != 0;
    }
    --nested_;
    return out;
  }

  std::string_view text_;
  const std::string& variables_;
  size_t at_ = 0;
  int nested_ = 0;
  bool failed_ = false;
};

// Scores a formula that follows from the premises. A trivial one (always true, or a variable alone) scores a quarter.
double propositional_logic(const Puzzle& puzzle, std::string_view text) {
  std::string variables;
  for (const Json& variable : puzzle.metadata.at("variables").as_array("variables"))
    variables += variable.as_string("variable");
  HONE_CHECK(variables.size() <= most_variables, "propositional_logic: ", variables.size(), " variables; ",
             most_variables, " are the most");
  Truth premises = ~Truth();
  for (const Json& premise : puzzle.metadata.at("premises").as_array("premises")) {
    const auto truth = Formula(premise.as_string("premise"), variables).truth();
    HONE_CHECK(truth, "propositional_logic: the premise '", premise.as_string("premise"), "' is not a formula");
    premises &= *truth;
  }
  Formula conclusion(text, variables);
  const auto truth = conclusion.truth();
  if (!truth || (premises & ~*truth).any()) return 0;
  return truth->all() || conclusion.num_operators == 0 ? 0.25 : 1;
}

// Scores a JSON object from each vertex to a color, with different colors along each edge.
double graph_color(const Puzzle& puzzle, std::string_view text) {
  Json colors;
  try {
    colors = parse_json(text, "answer");
  } catch (const Error&) {
    return 0;
  }
  if (!colors.is_object()) return 0;
  const Json& graph = puzzle.metadata.at("puzzle");
  const JsonArray& allowed = graph.at("color_options").as_array("color_options");
  const auto color = [&](const Json& vertex) { return colors.find(std::to_string(vertex.as_int("vertex"))); };
  for (const Json& vertex : graph.at("vertices").as_array("vertices"))
    if (const Json* given = color(vertex); !given || std::find(allowed.begin(), allowed.end(), *given) == allowed.end())
      return 0;
  for (const Json& edge : graph.at("edges").as_array("edges")) {
    const JsonArray& ends = edge.as_array("edge");
    HONE_CHECK(ends.size() == 2, "graph_color: an edge has ", ends.size(), " vertices; it must have 2");
    const Json *a = color(ends[0]), *b = color(ends[1]);
    HONE_CHECK(a && b, "graph_color: an edge names an unknown vertex");
    if (*a == *b) return 0;
  }
  return 1;
}

[[maybe_unused]] const bool added =
    puzzle_judges().add("propositional_logic", propositional_logic) && puzzle_judges().add("graph_color", graph_color);

}  // namespace

}  // namespace hone
