// Tests of templates: `x is defined`, `x is string` and others.
#include <algorithm>
#include <array>

#include "core/text/jinja/operators.h"
#include "core/text/jinja/routine.h"
#include "core/text/jinja/text.h"

namespace hone::jinja {
namespace {

using Args = const Arguments&;

template <Kind... kinds>
Value kind_is(Heap&, const Value& v, Args) {
  return Value((v.is(kinds) || ...));
}

int64_t integer_of(Heap& heap, const Value& v) {
  if (!v.is_integral()) heap.fail("expected an integer, got '", type_name(v), "'");
  return v.integer();
}

bool cased(const Value& v, std::string (*convert)(std::string_view)) {
  return v.is(Kind::string) && std::any_of(v.string().begin(), v.string().end(), is_letter) &&
         v.string() == convert(v.string());
}

Value divisible(Heap& heap, const Value& v, Args a) { return Value(!truth(modulo(heap, v, a[0]))); }
Value is_equal(Heap& heap, const Value& v, Args a) { return Value(equal(heap, v, a[0])); }
Value is_unequal(Heap& heap, const Value& v, Args a) { return Value(!equal(heap, v, a[0])); }
Value is_less(Heap& heap, const Value& v, Args a) { return Value(less(heap, v, a[0])); }
Value is_greater(Heap& heap, const Value& v, Args a) { return Value(less(heap, a[0], v)); }
Value at_most(Heap& heap, const Value& v, Args a) { return Value(less(heap, v, a[0]) || equal(heap, v, a[0])); }
Value at_least(Heap& heap, const Value& v, Args a) { return Value(less(heap, a[0], v) || equal(heap, v, a[0])); }

constexpr auto kIterable = kind_is<Kind::undefined, Kind::string, Kind::list, Kind::tuple, Kind::dict>;

constexpr auto kTests = std::to_array<Routine>({
    {"!=", "other!", is_unequal},
    {"<", "other!", is_less},
    {"<=", "other!", at_most},
    {"==", "other!", is_equal},
    {">", "other!", is_greater},
    {">=", "other!", at_least},
    {"boolean", "", kind_is<Kind::boolean>},
    {"callable", "", kind_is<Kind::function, Kind::undefined>},
    {"defined", "", [](Heap&, const Value& v, Args) { return Value(!v.is(Kind::undefined)); }},
    {"divisibleby", "num!", divisible},
    {"eq", "other!", is_equal},
    {"equalto", "other!", is_equal},
    {"even", "", [](Heap& heap, const Value& v, Args) { return Value(integer_of(heap, v) % 2 == 0); }},
    {"false", "", [](Heap&, const Value& v, Args) { return Value(v.is(Kind::boolean) && !v.integer()); }},
    {"filter", "", [](Heap&, const Value& v, Args) { return Value(v.is(Kind::string) && find_filter(v.string())); }},
    {"float", "", kind_is<Kind::real>},
    {"ge", "other!", at_least},
    {"greaterthan", "other!", is_greater},
    {"gt", "other!", is_greater},
    {"in", "seq!", [](Heap& heap, const Value& v, Args a) { return Value(contains(heap, a[0], v)); }},
    {"integer", "", kind_is<Kind::integer>},
    {"iterable", "", kIterable},
    {"le", "other!", at_most},
    {"lessthan", "other!", is_less},
    {"lower", "", [](Heap&, const Value& v, Args) { return Value(cased(v, lower)); }},
    {"lt", "other!", is_less},
    {"mapping", "", kind_is<Kind::dict>},
    {"ne", "other!", is_unequal},
    {"none", "", kind_is<Kind::none>},
    {"number", "", kind_is<Kind::boolean, Kind::integer, Kind::real>},
    {"odd", "", [](Heap& heap, const Value& v, Args) { return Value(integer_of(heap, v) % 2 != 0); }},
    {"sameas", "other!",
     [](Heap&, const Value& v, Args a) {
       return Value(v.is(Kind::none) || v.is(Kind::undefined) ? v.kind() == a[0].kind() : v.same_object(a[0]));
     }},
    {"sequence", "", kIterable},
    {"string", "", kind_is<Kind::string>},
    {"test", "", [](Heap&, const Value& v, Args) { return Value(v.is(Kind::string) && find_test(v.string())); }},
    {"true", "", [](Heap&, const Value& v, Args) { return Value(v.is(Kind::boolean) && v.integer()); }},
    {"undefined", "", kind_is<Kind::undefined>},
    {"upper", "", [](Heap&, const Value& v, Args) { return Value(cased(v, upper)); }},
});

}  // namespace

const Routine* find_test(std::string_view name) {
  const auto* it =
      std::find_if(kTests.begin(), kTests.end(), [&](const Routine& routine) { return routine.name == name; });
  return it == kTests.end() ? nullptr : it;
}

}  // namespace hone::jinja
