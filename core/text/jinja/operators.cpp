#include "core/text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

#include "core/text/jinja/routine.h"
#include "core/text/jinja/text.h"

namespace hone::jinja {
namespace {

[[noreturn]] void refuse(Heap& heap, std::string_view sign, const Value& a, const Value& b) {
  for (const Value& v : {a, b}) {
    if (v.is(Kind::undefined)) heap.fail("'", v.missing(), "' is undefined");
  }
  heap.fail("'", sign, "' cannot join '", type_name(a), "' and '", type_name(b), "'");
}

// Computes integers by `on_integers` (false on overflow) and other numbers by `real`.
template <class OnIntegers, class Real>
Value arithmetic(Heap& heap, std::string_view sign, const Value& a, const Value& b, OnIntegers on_integers, Real real) {
  if (!a.is_number() || !b.is_number()) refuse(heap, sign, a, b);
  if (!a.is_integral() || !b.is_integral()) return Value(real(a.number(), b.number()));
  int64_t out = 0;
  if (!on_integers(a.integer(), b.integer(), &out)) heap.fail("'", sign, "': the result has more than 63 bits");
  return Value(out);
}

Value joined(Heap& heap, const Value& a, const Value& b) {
  List out = a.list();
  out.insert(out.end(), b.list().begin(), b.list().end());
  return a.is(Kind::tuple) ? heap.tuple(std::move(out)) : heap.list(std::move(out));
}

Value repeated(Heap& heap, const Value& v, int64_t times) {
  if (v.is(Kind::string)) {
    std::string out;
    for (int64_t i = 0; i < times && !v.string().empty(); ++i) heap.append(out, v.string());
    return heap.string(std::move(out));
  }
  List out;
  for (int64_t i = 0; i < times && !v.list().empty(); ++i) {
    heap.spend(v.list().size() * 64);
    out.insert(out.end(), v.list().begin(), v.list().end());
  }
  return v.is(Kind::tuple) ? heap.tuple(std::move(out)) : heap.list(std::move(out));
}

bool repeatable(const Value& v) { return v.is(Kind::string) || v.is_sequence(); }

double real_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Returns the item at a position; a negative one counts from the end.
template <class Items>
const typename Items::value_type* item_at(const Items& items, int64_t i) {
  const auto size = static_cast<int64_t>(items.size());
  if (i < 0) i += size;
  return i < 0 || i >= size ? nullptr : &items[static_cast<size_t>(i)];
}

const Value* item(Heap& heap, const Value& container, const Value& key) {
  if (container.is(Kind::dict)) return find(heap, container.dict(), key);
  if (container.is(Kind::space) && key.is(Kind::string)) return container.space().find(key.string());
  if (container.is_sequence() && key.is_integral()) return item_at(container.list(), key.integer());
  return nullptr;
}

void need_defined(Heap& heap, const Value& container, std::string_view key) {
  if (container.is(Kind::undefined)) heap.fail("'", container.missing(), "' is undefined, so it has no '", key, "'");
}

}  // namespace

Value add(Heap& heap, const Value& a, const Value& b) {
  if (a.is(Kind::string) && b.is(Kind::string)) {
    std::string out;
    heap.append(out, a.string());
    heap.append(out, b.string());
    return heap.string(std::move(out));
  }
  if (a.is_sequence() && a.kind() == b.kind()) return joined(heap, a, b);
  return arithmetic(
      heap, "+", a, b, [](int64_t x, int64_t y, int64_t* out) { return !__builtin_add_overflow(x, y, out); },
      std::plus<double>());
}

Value subtract(Heap& heap, const Value& a, const Value& b) {
  return arithmetic(
      heap, "-", a, b, [](int64_t x, int64_t y, int64_t* out) { return !__builtin_sub_overflow(x, y, out); },
      std::minus<double>());
}

Value multiply(Heap& heap, const Value& a, const Value& b) {
  if (repeatable(a) && b.is_integral()) return repeated(heap, a, b.integer());
  if (repeatable(b) && a.is_integral()) return repeated(heap, b, a.integer());
  return arithmetic(
      heap, "*", a, b, [](int64_t x, int64_t y, int64_t* out) { return !__builtin_mul_overflow(x, y, out); },
      std::multiplies<double>());
}

static void need_nonzero(Heap& heap, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number() && b.number() == 0) heap.fail("division by zero");
}

Value divide(Heap& heap, const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) refuse(heap, "/", a, b);
  need_nonzero(heap, a, b);
  return Value(a.number() / b.number());
}

Value floor_divide(Heap& heap, const Value& a, const Value& b) {
  need_nonzero(heap, a, b);
  const auto on_integers = [](int64_t x, int64_t y, int64_t* out) {
    if (y == -1) return !__builtin_sub_overflow(int64_t{0}, x, out);
    *out = x / y - (x % y != 0 && (x < 0) != (y < 0));
    return true;
  };
  return arithmetic(heap, "//", a, b, on_integers,
                    [](double x, double y) { return std::floor((x - real_modulo(x, y)) / y + 0.5); });
}

Value modulo(Heap& heap, const Value& a, const Value& b) {
  if (a.is(Kind::string)) {
    Arguments arguments{b.is(Kind::tuple) ? b.list() : List{b}, {}};
    return call_filter(heap, "format", a, arguments);
  }
  need_nonzero(heap, a, b);
  const auto on_integers = [](int64_t x, int64_t y, int64_t* out) {
    *out = y == -1 ? 0 : x % y;
    if (*out != 0 && (*out < 0) != (y < 0)) *out += y;
    return true;
  };
  return arithmetic(heap, "%", a, b, on_integers, real_modulo);
}

Value power(Heap& heap, const Value& a, const Value& b) {
  const auto on_integers = [](int64_t x, int64_t y, int64_t* out) {
    *out = 1;
    if (x == 0 || x == 1) return *out = y == 0 ? 1 : x, true;
    if (x == -1) return *out = y % 2 == 0 ? 1 : -1, true;
    for (; y > 0; --y) {
      if (__builtin_mul_overflow(*out, x, out)) return false;
    }
    return true;
  };
  if (a.is_integral() && b.is_integral() && b.integer() < 0) {
    if (a.integer() == 0) heap.fail("division by zero");
    return Value(std::pow(a.number(), b.number()));
  }
  return arithmetic(heap, "**", a, b, on_integers, [](double x, double y) { return std::pow(x, y); });
}

Value negate(Heap& heap, const Value& a) {
  return a.is(Kind::real) ? Value(-a.number()) : subtract(heap, Value(int64_t{0}), a);
}

bool contains(Heap& heap, const Value& container, const Value& wanted) {
  if (container.is(Kind::string)) {
    if (!wanted.is(Kind::string)) refuse(heap, "in", wanted, container);
    heap.spend(container.string().size());
    return container.string().find(wanted.string()) != std::string::npos;
  }
  if (container.is(Kind::dict)) return find(heap, container.dict(), wanted) != nullptr;
  const List& list = items(heap, container);
  return std::any_of(list.begin(), list.end(), [&](const Value& v) { return equal(heap, v, wanted); });
}

Value attribute(Heap& heap, const Value& container, const std::string& name) {
  need_defined(heap, container, name);
  if (const Routine* routine = find_method(container.kind(), name)) return bound(heap, *routine, container);
  const Value* found = item(heap, container, Value(&name));
  return found ? *found : Value(&name, Kind::undefined);
}

Value subscript(Heap& heap, const Value& container, const Value& key) {
  need_defined(heap, container, key.is(Kind::string) ? key.string() : "item");
  if (const Value* found = item(heap, container, key)) return *found;
  if (container.is(Kind::string) && key.is_integral()) {
    heap.spend(container.string().size());
    const auto letters = chars(container.string());
    if (const auto* one = item_at(letters, key.integer())) return heap.string(std::string(*one));
  }
  if (!key.is(Kind::string)) return Value();
  if (const Routine* routine = find_method(container.kind(), key.string())) return bound(heap, *routine, container);
  return Value(&key.string(), Kind::undefined);
}

Value slice(Heap& heap, const Value& container, const Value& start, const Value& stop, const Value& step) {
  need_defined(heap, container, "slice");
  if (!container.is(Kind::string) && !container.is_sequence())
    heap.fail("'", type_name(container), "' cannot be sliced");
  const auto bound_or = [&](const Value& v, int64_t otherwise) {
    if (v.is(Kind::none)) return otherwise;
    if (!v.is_integral()) heap.fail("a slice needs integers, not '", type_name(v), "'");
    return v.integer();
  };
  const int64_t stride = std::clamp<int64_t>(bound_or(step, 1), -INT64_MAX / 4, INT64_MAX / 4);
  if (stride == 0) heap.fail("the step of a slice must not be 0");
  if (container.is(Kind::string)) heap.spend(container.string().size());
  const auto letters = container.is(Kind::string) ? chars(container.string()) : std::vector<std::string_view>();
  const auto size = static_cast<int64_t>(container.is(Kind::string) ? letters.size() : container.list().size());
  const auto bound_of = [&](const Value& v, int64_t otherwise) {
    if (v.is(Kind::none)) return otherwise;
    const int64_t i = bound_or(v, 0);
    return std::clamp<int64_t>(i < 0 ? std::max<int64_t>(i, -size - 1) + size : i, stride > 0 ? 0 : -1,
                               stride > 0 ? size : size - 1);
  };
  const int64_t first = bound_of(start, stride > 0 ? 0 : size - 1), last = bound_of(stop, stride > 0 ? size : -1);
  std::string text;
  List list;
  for (int64_t i = first; stride > 0 ? i < last : i > last; i += stride) {
    if (container.is(Kind::string))
      text += letters[static_cast<size_t>(i)];
    else
      list.push_back(container.list()[static_cast<size_t>(i)]);
  }
  if (container.is(Kind::string)) return heap.string(std::move(text));
  return container.is(Kind::tuple) ? heap.tuple(std::move(list)) : heap.list(std::move(list));
}

}  // namespace hone::jinja
