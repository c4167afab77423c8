#include "core/text/jinja/routine.h"

#include <algorithm>

namespace hone::jinja {

// Returns the arguments in the order of the routine's parameters.
static Arguments arranged(Heap& heap, const Routine& routine, const Arguments& given) {
  Arguments out;
  size_t used = 0;
  for (std::string_view rest = routine.parameters; !rest.empty();) {
    std::string_view name = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    const bool needed = name.ends_with('!');
    if (needed) name.remove_suffix(1);
    const size_t i = out.positional.size();
    const Value* named = given.find(name);
    used += named ? 1 : 0;
    out.positional.push_back(i < given.positional.size() ? given.positional[i] : named ? *named : Value());
    if (needed && i >= given.positional.size() && !named) heap.fail(routine.name, " needs its argument ", name);
  }
  if (given.positional.size() > out.positional.size())
    heap.fail(routine.name, " takes at most ", out.positional.size(), " arguments");
  if (used < given.named.size())
    heap.fail(routine.name, " takes the arguments (", routine.parameters, "), not those given");
  return out;
}

Value run(Heap& heap, const Routine& routine, const Value& self, const Arguments& arguments) {
  const Heap::Depth depth(heap);
  if (self.is(Kind::string)) heap.spend(self.string().size());
  if (routine.parameters == "...") return routine.body(heap, self, arguments);
  return routine.body(heap, self, arranged(heap, routine, arguments));
}

Value bound(Heap& heap, const Routine& routine, const Value& self) {
  return heap.function(std::string(routine.name), [&heap, &routine, self](const Arguments& arguments) {
    return run(heap, routine, self, arguments);
  });
}

Value call_filter(Heap& heap, std::string_view name, const Value& self, const Arguments& arguments) {
  const Routine* routine = find_filter(name);
  if (!routine) heap.fail("there is no filter '", name, "'");
  return run(heap, *routine, self, arguments);
}

bool call_test(Heap& heap, std::string_view name, const Value& self, const Arguments& arguments) {
  const Routine* routine = find_test(name);
  if (!routine) heap.fail("there is no test '", name, "'");
  return truth(run(heap, *routine, self, arguments));
}

int64_t integer_or(Heap& heap, const Value& v, int64_t otherwise) {
  if (v.is(Kind::undefined)) return otherwise;
  if (!v.is_integral()) heap.fail("expected an integer, got '", type_name(v), "'");
  return v.integer();
}

const std::string& string_or(Heap& heap, const Value& v, const std::string& otherwise) {
  if (v.is(Kind::undefined)) return otherwise;
  if (!v.is(Kind::string)) heap.fail("expected a string, got '", type_name(v), "'");
  return v.string();
}

}  // namespace hone::jinja
