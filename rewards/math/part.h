#pragma once
// Part of an answer as it is compared: a node of its tree, and the sign that \pm stands for.
#include <algorithm>
#include <string_view>
#include <vector>

#include "rewards/math/expr.h"

namespace hone::math {

struct Part {
  const Tree* tree = nullptr;
  int32_t node = -1;
  int sign = 0;  // sign of \pm; 0: both

  const Node& get() const { return tree->at(node); }
  Kind kind() const { return get().kind; }
  std::string_view text() const { return tree->text(node); }
  Part with(int32_t other) const { return {tree, other, sign}; }
  std::vector<Part> children() const {
    std::vector<Part> out;
    for (int32_t c = get().first; c >= 0; c = tree->at(c).next) out.push_back(with(c));
    return out;
  }
  bool holds(Kind wanted) const {
    if (kind() == wanted) return true;
    for (int32_t c = get().first; c >= 0; c = tree->at(c).next)
      if (with(c).holds(wanted)) return true;
    return false;
  }
};

// Returns true if the part contains no variable.
bool is_constant(const Part& part);

// Returns true for the left side of "x = 5" when 5 is the answer: x, f(x), AB, (p,q), A:B, "Area".
bool is_name(const Part& part);

}  // namespace hone::math
