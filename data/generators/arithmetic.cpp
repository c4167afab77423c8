// Addition of two numbers of a fixed width ("047+085"), column by column from the right. Completions have two styles:
// careful ones add the carry (":7+5+0=12,4+8+1=13,0+0+1=01=0132"); hasty ones add each column without it
// ("~7+5=2,4+8=2,0+0=00=0022"), which is right only if no inner column carries. A model trained on both can write
// either; a reward teaches it the careful style.
#include "core/base/rng.h"
#include "data/generator.h"
#include "data/index_loader.h"

namespace hone {
namespace {

class Arithmetic : public Generator {
 public:
  void fields(Fields& f) override {
    f("digits", digits_, "number of digits of each operand, including leading zeros");
    f("heldout", heldout_, "number of problems of the test split");
    f("worked", worked_, "share of careful completions; the others are hasty and forget the carries");
    f("seed", seed_, "seed of the train split's order and styles; the test split's problems do not depend on it");
    f.require("digits", digits_ >= 1 && digits_ <= 9, "digits must be in [1, 9]");
    f.require("worked", worked_ >= 0 && worked_ <= 1, "worked must be in [0, 1]");
    f.require("heldout", heldout_ >= 0 && heldout_ < count(), concat("heldout must be in [0, ", count(), ")"));
  }

  int64_t size(const std::string& split) const override { return split == "test" ? heldout_ : count() - heldout_; }

  Example example(const std::string& split, int64_t index) const override {
    const uint64_t problem = problem_at(split, static_cast<uint64_t>(index)), base = static_cast<uint64_t>(operands());
    const int64_t a = static_cast<int64_t>(problem / base), b = static_cast<int64_t>(problem % base);
    Example out;
    out.prompt = padded(a, digits_) + "+" + padded(b, digits_);
    out.answer = std::to_string(a + b);
    const bool work = Rng(static_cast<uint64_t>(seed_), stream_of("arithmetic/style"), problem).uniform() < worked_;
    out.completion =
        (work ? careful(a, b) : hasty(a, b)) + "=" + padded(work ? a + b : without_carries(a, b), digits_ + 1);
    return out;
  }

 private:
  int64_t operands() const {
    int64_t out = 1;
    for (int64_t i = 0; i < digits_; ++i) out *= 10;
    return out;
  }
  int64_t count() const { return operands() * operands(); }

  // The held-out problems are the first of one fixed order of all problems. The train split orders the rest by its
  // seed.
  uint64_t problem_at(const std::string& split, uint64_t index) const {
    const uint64_t all = static_cast<uint64_t>(count()), heldout = static_cast<uint64_t>(heldout_);
    const uint64_t place =
        split == "test" ? index : heldout + Permutation(all - heldout, static_cast<uint64_t>(seed_), 1)(index);
    return Permutation(all, 0, 0)(place);
  }

  static std::string padded(int64_t number, int64_t width) {
    std::string out = std::to_string(number);
    return std::string(static_cast<size_t>(width) - out.size(), '0') + out;
  }

  // The sum without carries, except in the leftmost column.
  int64_t without_carries(int64_t a, int64_t b) const {
    int64_t out = 0, place = 1;
    for (int64_t column = 1; column < digits_; ++column, a /= 10, b /= 10, place *= 10)
      out += (a % 10 + b % 10) % 10 * place;
    return out + (a + b) * place;
  }

  std::string hasty(int64_t a, int64_t b) const {
    std::string out;
    for (int64_t column = 0; column < digits_; ++column, a /= 10, b /= 10) {
      const int64_t sum = a % 10 + b % 10;
      out += (column == 0 ? "~" : ",") + std::to_string(a % 10) + "+" + std::to_string(b % 10) + "=" +
             (column + 1 < digits_ ? std::to_string(sum % 10) : padded(sum, 2));
    }
    return out;
  }

  std::string careful(int64_t a, int64_t b) const {
    std::string out;
    for (int64_t column = 0, carry = 0; column < digits_; ++column, a /= 10, b /= 10) {
      const int64_t sum = a % 10 + b % 10 + carry;
      out += (column == 0 ? ":" : ",") + std::to_string(a % 10) + "+" + std::to_string(b % 10) + "+" +
             std::to_string(carry) + "=" + padded(sum, 2);
      carry = sum / 10;
    }
    return out;
  }

  int64_t digits_ = 3, heldout_ = 1000, seed_ = 0;
  double worked_ = 0.5;
};

[[maybe_unused]] const bool added =
    generators().add("arithmetic", [] { return std::unique_ptr<Generator>(new Arithmetic); });

}  // namespace
}  // namespace hone
