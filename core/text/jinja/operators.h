#pragma once
// Operators, subscripts and attributes of values. Each follows Python; it throws an Error if Python raises an
// exception.
#include "core/text/jinja/value.h"

namespace hone::jinja {

Value add(Heap& heap, const Value& a, const Value& b);
Value subtract(Heap& heap, const Value& a, const Value& b);
Value multiply(Heap& heap, const Value& a, const Value& b);
Value divide(Heap& heap, const Value& a, const Value& b);
Value floor_divide(Heap& heap, const Value& a, const Value& b);
Value modulo(Heap& heap, const Value& a, const Value& b);
Value power(Heap& heap, const Value& a, const Value& b);
Value negate(Heap& heap, const Value& a);
bool contains(Heap& heap, const Value& container, const Value& item);

// container.name finds a method first, then an item. container[key] finds an item first. Both return undefined if there
// is neither.
Value attribute(Heap& heap, const Value& container, const std::string& name);
Value subscript(Heap& heap, const Value& container, const Value& key);
// container[start:stop:step]; an omitted bound is none.
Value slice(Heap& heap, const Value& container, const Value& start, const Value& stop, const Value& step);

}  // namespace hone::jinja
