// Execution of statements.
#include <algorithm>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/operators.h"

namespace hone::jinja {

void Frame::set(std::string_view name, const Value& value) const {
  heap.spend(scope->names.size() + 16);
  for (auto& [known, old] : scope->names) {
    if (known == name) return void(old = value);
  }
  scope->names.emplace_back(name, value);
}

const Value* Frame::find(std::string_view name) const {
  for (const Scope* at = scope; at; at = at->parent) {
    heap.spend(at->names.size());
    for (const auto& [known, value] : at->names) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Flow execute(const Block& block, Frame& frame) {
  const Heap::Depth depth(frame.heap);
  for (const Statement* statement : block) {
    frame.heap.line = statement->line;
    frame.heap.spend(32);
    const Flow flow = statement->execute(frame);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

std::string captured(const Block& block, Frame& frame, Scope* parent) {
  std::string out;
  Frame inner{frame.heap, frame.enter(parent), out, nullptr, frame.scopes};
  execute(block, inner);
  return out;
}

Flow Text::execute(Frame& frame) const { return frame.heap.append(frame.out, text), Flow::next; }

Flow Print::execute(Frame& frame) const { return append_text(frame.heap, frame.out, (*value)(frame)), Flow::next; }

Flow If::execute(Frame& frame) const {
  for (const auto& [test, body] : branches) {
    if (truth((*test)(frame))) return jinja::execute(body, frame);
  }
  return jinja::execute(otherwise, frame);
}

void Target::assign(Frame& frame, const Value& value) const {
  if (member) {
    const Value* space = frame.find(*names[0]);
    if (!space || !space->is(Kind::space) || !space->space().assignable)
      frame.heap.fail("'", *names[0], "' is not a namespace() to set in");
    frame.heap.spend(space->space().names.size());
    if (Value* old = space->space().find(*member))
      *old = value;
    else
      space->space().names.emplace_back(*member, value);
  } else if (unpack) {
    const List& parts = items(frame.heap, value);
    if (parts.size() != names.size()) frame.heap.fail(names.size(), " names for ", parts.size(), " values");
    for (size_t i = 0; i < names.size(); ++i) frame.set(*names[i], parts[i]);
  } else {
    frame.set(*names[0], value);
  }
}

Flow For::execute(Frame& frame) const {
  run(frame, (*iterable)(frame), 0);
  return Flow::next;
}

namespace {

// The loop variable: one object whose members change with each iteration.
class Loop {
 public:
  Loop(Heap& heap, const List& list, int64_t depth) : space_(heap.space()), list_(list) {
    space_->assignable = false;
    const auto size = static_cast<int64_t>(list.size());
    space_->names = {{"index", Value()},          {"index0", Value()},     {"revindex", Value()},
                     {"revindex0", Value()},      {"first", Value()},      {"last", Value()},
                     {"previtem", Value()},       {"nextitem", Value()},   {"length", Value(size)},
                     {"depth", Value(depth + 1)}, {"depth0", Value(depth)}};
    Space* space = space_;
    const Value cycle = heap.function("cycle", [&heap, space](const Arguments& given) {
      if (given.positional.empty()) heap.fail("loop.cycle needs values");
      return given.positional[static_cast<size_t>(space->find("index0")->integer()) % given.positional.size()];
    });
    Space* memory = heap.space();
    const Value changed = heap.function("changed", [&heap, memory](const Arguments& given) {
      const Value now = heap.tuple(given.positional);
      Value* last = memory->find("last");
      if (last && equal(heap, *last, now)) return Value(false);
      if (last)
        *last = now;
      else
        memory->names.emplace_back("last", now);
      return Value(true);
    });
    space_->names.emplace_back("cycle", cycle);
    space_->names.emplace_back("changed", changed);
  }

  void move_to(size_t i) {
    const auto index = static_cast<int64_t>(i), size = static_cast<int64_t>(list_.size());
    const Value moving[] = {Value(index + 1),           Value(index),
                            Value(size - index),        Value(size - index - 1),
                            Value(index == 0),          Value(index + 1 == size),
                            i ? list_[i - 1] : Value(), i + 1 < list_.size() ? list_[i + 1] : Value()};
    for (size_t k = 0; k < std::size(moving); ++k) space_->names[k].second = moving[k];
  }
  Space* space() const { return space_; }

 private:
  Space* space_;
  const List& list_;
};

}  // namespace

void For::run(Frame& frame, const Value& over, int64_t depth) const {
  Heap& heap = frame.heap;
  Scope* const outer = frame.scope;
  const List* list = &items(heap, over);
  if (condition) {
    List kept;
    for (const Value& item : *list) {
      frame.scope = frame.enter(outer);
      target.assign(frame, item);
      if (truth((*condition)(frame))) kept.push_back(item);
    }
    frame.scope = outer;
    list = &heap.list(std::move(kept)).list();
  }
  if (list->empty()) {
    jinja::execute(otherwise, frame);
    return;
  }
  Loop loop(heap, *list, depth);
  if (recursive) {
    const Value again =
        heap.function("loop", [this, &heap, outer, &scopes = frame.scopes, depth](const Arguments& given) {
          if (given.positional.size() != 1) heap.fail("loop(...) takes what to walk");
          std::string out;
          Frame inner{heap, outer, out, nullptr, scopes};
          run(inner, given.positional[0], depth + 1);
          return heap.string(std::move(out));
        });
    loop.space()->call = &again.function();
  }
  for (size_t i = 0; i < list->size(); ++i) {
    heap.spend(64);
    loop.move_to(i);
    frame.scope = frame.enter(outer);
    frame.scope->names.emplace_back("loop", Value(loop.space()));
    target.assign(frame, (*list)[i]);
    if (jinja::execute(body, frame) == Flow::stop) break;
  }
  frame.scope = outer;
}

Flow Set::execute(Frame& frame) const { return target.assign(frame, (*value)(frame)), Flow::next; }

static Value filtered(Frame& frame, const std::vector<const Filter*>& filters, std::string text) {
  Value out = frame.heap.string(std::move(text));
  for (const Filter* filter : filters) out = filter->apply(frame, out);
  return out;
}

Flow SetBlock::execute(Frame& frame) const {
  target.assign(frame, filtered(frame, filters, captured(body, frame, frame.scope)));
  return Flow::next;
}

Flow FilterBlock::execute(Frame& frame) const {
  append_text(frame.heap, frame.out, filtered(frame, filters, captured(body, frame, frame.scope)));
  return Flow::next;
}

Flow With::execute(Frame& frame) const {
  Scope* const outer = frame.scope;
  List set;
  for (const auto& [target, value] : values) set.push_back((*value)(frame));
  frame.scope = frame.enter(outer);
  for (size_t i = 0; i < values.size(); ++i) values[i].first.assign(frame, set[i]);
  const Flow flow = jinja::execute(body, frame);
  frame.scope = outer;
  return flow;
}

Flow Macro::execute(Frame& frame) const {
  frame.set(*name, frame.heap.function(*name, [this, &heap = frame.heap, &scopes = frame.scopes,
                                               scope = frame.scope](const Arguments& given) {
    std::string unused;
    Frame inner{heap, scope, unused, nullptr, scopes};
    return call(inner, scope, given);
  }));
  return Flow::next;
}

Value Macro::call(Frame& frame, Scope* defined_in, const Arguments& given) const {
  Heap& heap = frame.heap;
  frame.scope = frame.enter(defined_in);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [parameter, otherwise] = parameters[i];
    const Value* named = given.find(*parameter);
    frame.set(*parameter, i < given.positional.size() ? given.positional[i]
                          : named                     ? *named
                          : otherwise                 ? (*otherwise)(frame)
                                                      : Value(parameter, Kind::undefined));
  }
  if (given.positional.size() > parameters.size())
    heap.fail("macro ", *name, " takes at most ", parameters.size(), " arguments");
  for (const auto& [key, value] : given.named) {
    const bool known =
        std::any_of(parameters.begin(), parameters.end(), [&, k = key](const auto& p) { return *p.first == k; });
    if (!known) heap.fail("macro ", *name, " has no parameter '", key, "'");
  }
  return heap.string(captured(body, frame, frame.scope));
}

Flow Generation::execute(Frame& frame) const {
  Scope* const outer = frame.scope;
  const size_t start = frame.out.size();
  frame.scope = frame.enter(outer);
  const Flow flow = jinja::execute(body, frame);
  frame.scope = outer;
  if (frame.generation) frame.generation->emplace_back(start, frame.out.size());
  return flow;
}

}  // namespace hone::jinja
