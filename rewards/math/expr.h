#pragma once
// A mathematical answer as a tree, read from LaTeX or plain notation. Nothing is evaluated while reading, and reading
// takes time and memory linear in the text: at most max_source bytes, max_nodes nodes and max_depth levels (a bracket
// is three: itself, its sum, its power); anything beyond does not parse.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hone::math {

constexpr size_t max_source = 4096, max_nodes = 2048;
constexpr int max_depth = 60;

enum class Kind : uint8_t {
  number,     // a literal without separators: "1000", "2.50", "1e3"
  symbol,     // x, x_{1}, \theta, f'; \pi, e and i are constants
  word,       // \text{even}, Monday
  opaque,     // something kept as written: \overline{AB}
  repeating,  // 0.1\overline{6}
  based,      // digits in base `columns`: 1010_2; the text is the digits
  infinity,
  add,
  multiply,
  divide,
  power,
  negate,
  plus_minus,  // a \pm b, or \pm b with one child; op '-' for \mp
  percent,
  degree,  // in the argument of a trigonometric function
  factorial,
  scale,     // times 10^columns ("3 million")
  unit,      // a quantity; the text names its unit ("cm", "\text{ miles per hour}")
  function,  // text names it: sin, sqrt (child 2 = the root's order), abs, binom, ...
  ratio,     // a : b : c
  relation,  // sides; each but the first has op: = < > L(<=) G(>=) !(not equal) ~(approximately) i(in)
  tuple,     // (a, b), [a, b): two or more children between open and close
  list,      // a, b, c without brackets
  set,       // \{a, b\}
  set_union,
  matrix,  // row by row; columns
};

struct Node {
  Kind kind = Kind::number;
  char op = 0;               // how it joins the sibling before it (relation), \pm's sign, '|' of a list of alternatives
  char open = 0, close = 0;  // of a tuple
  bool applied = false;      // multiply: a letter directly before a bracket, which may be f(x)
  uint16_t count = 0, columns = 0;  // children; of a matrix, a scale's zeros, a base
  uint16_t size = 1;                // nodes from here down
  int32_t first = -1, next = -1;    // first child, next sibling
  uint32_t begin = 0, end = 0;      // the text it names, in the tree's source
};

struct Tree {
  std::string source;  // cleaned
  std::vector<Node> nodes;
  int32_t root = -1;                                          // -1: the text is not mathematics we read
  bool decimal = false, percent = false, plus_minus = false;  // whether it holds any

  const Node& at(int32_t node) const { return nodes[static_cast<size_t>(node)]; }
  std::string_view text(int32_t node) const {
    return std::string_view(source).substr(at(node).begin, at(node).end - at(node).begin);
  }
  explicit operator bool() const { return root >= 0; }
};

// LaTeX without what only changes its looks (\left, \!, \dfrac, dollar signs, Unicode spellings), spaces single. \$
// before a number becomes \dollar, degree signs become \degree.
std::string clean(std::string_view text);

// any_unit: unknown words after a number are its unit and dropped ("72 clips"); otherwise only units of length, time,
// angle and the like are.
Tree parse(std::string cleaned, bool any_unit);

}  // namespace hone::math
