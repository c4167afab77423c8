#pragma once
// Filters, tests and methods: routines with a parameter list, found by name.
#include <string_view>

#include "core/text/jinja/value.h"

namespace hone::jinja {

struct Routine {
  std::string_view name;
  // Names in order, with "!" after required ones. "..." passes the arguments unchanged.
  std::string_view parameters;
  // The arguments are positional, in the order of the parameters; an omitted one is undefined.
  Value (*body)(Heap&, const Value& self, const Arguments&);
};

// Return nullptr if there is no such routine.
const Routine* find_filter(std::string_view name);
const Routine* find_test(std::string_view name);
const Routine* find_method(Kind self, std::string_view name);

Value run(Heap& heap, const Routine& routine, const Value& self, const Arguments& arguments);
Value bound(Heap& heap, const Routine& routine, const Value& self);  // returns self.name as a function value
// Call a routine by name. An unknown name is an Error.
Value call_filter(Heap& heap, std::string_view name, const Value& self, const Arguments& arguments);
bool call_test(Heap& heap, std::string_view name, const Value& self, const Arguments& arguments);

// Read an argument: its value, or `otherwise` if it was omitted. A value of another kind is an Error.
int64_t integer_or(Heap& heap, const Value& v, int64_t otherwise);
const std::string& string_or(Heap& heap, const Value& v, const std::string& otherwise);

}  // namespace hone::jinja
