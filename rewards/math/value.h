#pragma once
// Compares two expressions by value, as numbers or as functions of their variables. Rational expressions are computed
// exactly, or modulo primes if their numbers are too large to write out. All others are computed in floating point
// (eval.h).
#include "rewards/math/compare.h"
#include "rewards/math/part.h"
#include "rewards/math/rational_value.h"

namespace hone::math {

class ValueComparison {
 public:
  ValueComparison(const MathPolicy& policy, uint64_t seed) : policy_(policy), seed_(seed) {}

  // percent, units: "%" and units of measure are factors; otherwise they are ignored.
  bool same(const Part& g, const Part& a, bool percent, bool units);

  // Returns true if two constants, one of them a decimal or irrational, differ by at most a hundredth of their size: a
  // rounded equality.
  bool nearly_same(const Part& g, const Part& a) const;
  // Returns true if the relative difference is within the tolerance.
  bool differ_by_at_most(double tolerance, const Part& g, const Part& a) const;

  // Returns the sign of the constant c for which left - right of one relation is c times that of the other; 0 if there
  // is no such constant.
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
