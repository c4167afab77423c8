#pragma once
// Whether two expressions have the same value, as numbers or as functions of their variables. Rational ones are
// computed exactly or, where their numbers are too large to write out, modulo primes; all others in floating point
// (eval.h).
#include "rewards/math/compare.h"
#include "rewards/math/part.h"
#include "rewards/math/rational_value.h"

namespace hone::math {

class ValueComparison {
 public:
  ValueComparison(const MathPolicy& policy, uint64_t seed) : policy_(policy), seed_(seed) {}

  // percent and units: whether "%" and units of measure are factors (else they are ignored).
  bool same(const Part& g, const Part& a, bool percent, bool units);

  // Whether two constants, one of them a decimal or not rational, agree to a hundredth of their size: an equality that
  // someone rounded.
  bool nearly_same(const Part& g, const Part& a) const;

  // left - right of one relation is a constant times that of the other: the constant's sign, 0 if there is no such
  // constant.
  struct Sides {
    Part left, right;
  };
  int proportional(const Sides& g, const Sides& a);

 private:
  Point point(const Part& part, const Point& shape) const;
  Outcome compare_exactly(const Part& g, const Part& a, const Point& shape, bool& equal);
  Outcome compare_modulo_primes(const Part& g, const Part& a, const Point& shape, bool& equal);
  bool compare_approximately(const Part& g, const Part& a, const Point& shape) const;
  Outcome proportional_exactly(const Sides& g, const Sides& a, int& sign);
  int proportional_approximately(const Sides& g, const Sides& a) const;
  bool rounds_alike(const Part& g, const Part& a, const Point& shape);

  MathPolicy policy_;
  uint64_t seed_;
  Budget budget_;
};

}  // namespace hone::math
