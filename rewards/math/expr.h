#pragma once
// A mathematical answer as a tree, parsed from LaTeX or plain notation. Parsing evaluates nothing and takes time and
// memory linear in the text: at most max_source bytes, max_nodes nodes and max_depth levels (a bracket is three:
// itself, its sum, its power). A text beyond these limits does not parse.
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
  opaque,     // kept as written: \overline{AB}
  repeating,  // 0.1\overline{6}
  based,      // digits in base `columns`: 1010_2; the text holds the digits
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
  relation,  // sides; each except the first has op: = < > L(<=) G(>=) !(not equal) ~(approximately) i(in)
  tuple,     // (a, b), [a, b): two or more children between open and close
  list,      // a, b, c without brackets
  set,       // \{a, b\}
  set_union,
  matrix,  // row by row; columns
};

struct Node {
  Kind kind = Kind::number;
  char op = 0;                      // relation to the previous sibling, sign of \pm, '|' of a list of alternatives
  char open = 0, close = 0;         // brackets of a tuple
  bool applied = false;             // multiply: a letter directly before a bracket, which may be f(x)
  uint16_t count = 0, columns = 0;  // number of children; columns of a matrix, zeros of a scale, a base
  uint16_t size = 1;                // number of nodes in this subtree
  int32_t first = -1, next = -1;    // first child, next sibling
  uint32_t begin = 0, end = 0;      // byte range in the tree's source
};

struct Tree {
  std::string source;  // cleaned
  std::vector<Node> nodes;
  int32_t root = -1;                                          // -1: the text did not parse
  bool decimal = false, percent = false, plus_minus = false;  // the tree contains one

  const Node& at(int32_t node) const { return nodes[static_cast<size_t>(node)]; }
  std::string_view text(int32_t node) const {
    return std::string_view(source).substr(at(node).begin, at(node).end - at(node).begin);
  }
  explicit operator bool() const { return root >= 0; }
};

// Returns LaTeX without markup that only changes its appearance (\left, \!, \dfrac, dollar signs, Unicode spellings)
// and with single spaces. \$ before a number becomes \dollar; degree signs become \degree.
std::string clean(std::string_view text);

// Parses a cleaned text. any_unit: unknown words after a number are its unit and are dropped ("72 clips"); otherwise
// only known units (length, time, angle and others) are read as units.
Tree parse(std::string cleaned, bool any_unit);

}  // namespace hone::math
