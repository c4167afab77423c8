#pragma once
// Filters, tests and methods: named routines with a list of parameters, found by name.
#include <string_view>

#include "core/text/jinja/value.h"

namespace hone::jinja {

struct Routine {
  std::string_view name;
  std::string_view
      parameters;  // names in order, "!" after those that must be given; "..." passes the arguments on as they came
  Value (*body)(Heap&, const Value& self,
                const Arguments&);  // positional arguments in the parameters' order, undefined where left out
};

// Null where there is none.
const Routine* find_filter(std::string_view name);
const Routine* find_test(std::string_view name);
const Routine* find_method(Kind self, std::string_view name);

Value run(Heap& heap, const Routine& routine, const Value& self, const Arguments& arguments);
Value bound(Heap& heap, const Routine& routine, const Value& self);  // self.name, to be called later
// By name; unknown names are Errors.
Value call_filter(Heap& heap, std::string_view name, const Value& self, const Arguments& arguments);
bool call_test(Heap& heap, std::string_view name, const Value& self, const Arguments& arguments);

// Arguments of routines: the value, or `otherwise` where it was left out; another kind is an Error.
int64_t integer_or(Heap& heap, const Value& v, int64_t otherwise);
const std::string& string_or(Heap& heap, const Value& v, const std::string& otherwise);

}  // namespace hone::jinja
