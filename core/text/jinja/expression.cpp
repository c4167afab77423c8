// Evaluation of expressions.
#include <algorithm>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/operators.h"

namespace hone::jinja {

Value Expression::operator()(Frame& frame) const {
  const Heap::Depth depth(frame.heap);
  frame.heap.line = line;
  return evaluate(frame);
}

Value Name::evaluate(Frame& frame) const {
  const Value* found = frame.find(*name);
  return found ? *found : Value(name, Kind::undefined);
}

Value Sequence::evaluate(Frame& frame) const {
  List out;
  for (const Expression* item : items) out.push_back((*item)(frame));
  return tuple ? frame.heap.tuple(std::move(out)) : frame.heap.list(std::move(out));
}

Value Mapping::evaluate(Frame& frame) const {
  Dict out;
  for (const auto& [key, item] : entries) {
    const Value name = (*key)(frame), value = (*item)(frame);
    const auto same = [&](const auto& entry) { return equal(frame.heap, entry.first, name); };
    const auto old = std::find_if(out.begin(), out.end(), same);
    if (old != out.end())
      old->second = value;
    else
      out.emplace_back(name, value);
  }
  return frame.heap.dict(std::move(out));
}

Value Unary::evaluate(Frame& frame) const { return operation(frame.heap, (*operand)(frame)); }

Value Binary::evaluate(Frame& frame) const {
  const Value a = (*left)(frame), b = (*right)(frame);
  return operation(frame.heap, a, b);
}

Value Logical::evaluate(Frame& frame) const {
  const Value value = (*left)(frame);
  return truth(value) == continue_if ? (*right)(frame) : value;
}

Value Concat::evaluate(Frame& frame) const {
  std::string out;
  for (const Expression* part : parts) append_text(frame.heap, out, (*part)(frame));
  return frame.heap.string(std::move(out));
}

Value Comparison::evaluate(Frame& frame) const {
  Value left = (*first)(frame);
  for (const auto& [operation, next] : rest) {
    const Value right = (*next)(frame);
    if (!operation(frame.heap, left, right)) return Value(false);
    left = right;
  }
  return Value(true);
}

Value Conditional::evaluate(Frame& frame) const {
  if (truth((*test)(frame))) return (*yes)(frame);
  return no ? (*no)(frame) : Value();
}

Value Attribute::evaluate(Frame& frame) const { return attribute(frame.heap, (*container)(frame), *name); }

Value Subscript::evaluate(Frame& frame) const {
  const Value from = (*container)(frame);
  return subscript(frame.heap, from, (*key)(frame));
}

Value Slice::evaluate(Frame& frame) const {
  const auto part = [&](const Expression* e) { return e ? (*e)(frame) : Value::none(); };
  const Value from = (*container)(frame), a = part(start), b = part(stop), c = part(step);
  return slice(frame.heap, from, a, b, c);
}

Arguments CallArguments::evaluate(Frame& frame) const {
  Arguments out;
  for (const Expression* e : positional) out.positional.push_back((*e)(frame));
  for (const auto& [name, e] : named) out.named.emplace_back(*name, (*e)(frame));
  return out;
}

Value Call::evaluate(Frame& frame) const {
  const Value function = (*callee)(frame);
  const Arguments given = arguments.evaluate(frame);
  frame.heap.line = line;
  return call(frame.heap, function, given);
}

Value Filter::apply(Frame& frame, const Value& value) const {
  const Arguments given = arguments.evaluate(frame);
  frame.heap.line = line;
  return call_filter(frame.heap, *name, value, given);
}

Value Test::evaluate(Frame& frame) const {
  const Value value = (*input)(frame);
  return Value(call_test(frame.heap, *name, value, arguments.evaluate(frame)));
}

}  // namespace hone::jinja
