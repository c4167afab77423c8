#pragma once
// The syntax tree of a template. Expressions evaluate and statements execute themselves. The tree owns its nodes and
// strings; nothing changes after parsing.
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/text/jinja/routine.h"
#include "core/text/jinja/value.h"

namespace hone::jinja {

// The names that a for, a macro or a block sets. Lookups continue in the parent.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;
};

using Ranges = std::vector<std::pair<size_t, size_t>>;

// The state of one rendering.
struct Frame {
  Heap& heap;
  Scope* scope;
  std::string& out;
  Ranges* generation;         // null while output is captured
  std::deque<Scope>& scopes;  // all scopes of this rendering: a macro keeps the one it was defined in

  Scope* enter(Scope* parent) const { return &scopes.emplace_back(Scope{parent, {}}); }
  void set(std::string_view name, const Value& value) const;
  const Value* find(std::string_view name) const;
};

struct Node {
  int line = 0;
  virtual ~Node() = default;
};

struct Expression : Node {
  Value operator()(Frame& frame) const;
  virtual Value evaluate(Frame& frame) const = 0;
};

enum class Flow { next, stop, again };  // next statement, break, continue

struct Statement : Node {
  virtual Flow execute(Frame& frame) const = 0;
};

using Expressions = std::vector<const Expression*>;
using Block = std::vector<const Statement*>;

Flow execute(const Block& block, Frame& frame);
// Returns the output of the block, executed in a new scope below `parent`.
std::string captured(const Block& block, Frame& frame, Scope* parent);

class Tree {
 public:
  template <class T>
  T* make(int line) {
    auto node = std::make_unique<T>();
    node->line = line;
    T* out = node.get();
    nodes_.push_back(std::move(node));
    return out;
  }
  const std::string* text(std::string value) { return &strings_.emplace_back(std::move(value)); }
  Block body;

 private:
  std::deque<std::unique_ptr<Node>> nodes_;
  std::deque<std::string> strings_;
};

// Expressions.
struct Literal : Expression {
  Value value;
  Value evaluate(Frame&) const override { return value; }
};
struct Name : Expression {
  const std::string* name;
  Value evaluate(Frame&) const override;
};
struct Sequence : Expression {
  Expressions items;
  bool tuple = false;
  Value evaluate(Frame&) const override;
};
struct Mapping : Expression {
  std::vector<std::pair<const Expression*, const Expression*>> entries;
  Value evaluate(Frame&) const override;
};
struct Unary : Expression {
  Value (*operation)(Heap&, const Value&);
  const Expression* operand;
  Value evaluate(Frame&) const override;
};
struct Binary : Expression {
  Value (*operation)(Heap&, const Value&, const Value&);
  const Expression *left, *right;
  Value evaluate(Frame&) const override;
};
struct Logical : Expression {  // evaluates the right side if the truth of the left side is `continue_if`
  bool continue_if;
  const Expression *left, *right;
  Value evaluate(Frame&) const override;
};
struct Concat : Expression {
  Expressions parts;
  Value evaluate(Frame&) const override;
};
struct Comparison : Expression {  // a < b <= c: each operation compares two neighbors
  using Operation = bool (*)(Heap&, const Value&, const Value&);
  const Expression* first;
  std::vector<std::pair<Operation, const Expression*>> rest;
  Value evaluate(Frame&) const override;
};
struct Conditional : Expression {
  const Expression *test, *yes, *no;  // `no` may be null: undefined
  Value evaluate(Frame&) const override;
};
struct Attribute : Expression {
  const Expression* container;
  const std::string* name;
  Value evaluate(Frame&) const override;
};
struct Subscript : Expression {
  const Expression *container, *key;
  Value evaluate(Frame&) const override;
};
struct Slice : Expression {
  const Expression *container, *start, *stop, *step;  // null if omitted
  Value evaluate(Frame&) const override;
};
struct CallArguments {
  Expressions positional;
  std::vector<std::pair<const std::string*, const Expression*>> named;
  Arguments evaluate(Frame&) const;
};
struct Call : Expression {
  const Expression* callee;
  CallArguments arguments;
  Value evaluate(Frame&) const override;
};
struct Filter : Expression {
  const Expression* input = nullptr;  // null in a filter or set block, whose text is the input
  const std::string* name;
  CallArguments arguments;
  Value apply(Frame&, const Value& input) const;
  Value evaluate(Frame& frame) const override { return apply(frame, (*input)(frame)); }
};
struct Test : Expression {
  const Expression* input;
  const std::string* name;
  CallArguments arguments;
  Value evaluate(Frame&) const override;
};

// Statements.
struct Text : Statement {
  std::string text;
  Flow execute(Frame&) const override;
};
struct Print : Statement {
  const Expression* value;
  Flow execute(Frame&) const override;
};
struct If : Statement {
  std::vector<std::pair<const Expression*, Block>> branches;
  Block otherwise;
  Flow execute(Frame&) const override;
};
// The target of a set or for: names, or one attribute of a namespace.
struct Target {
  std::vector<const std::string*> names;
  const std::string* member = nullptr;
  bool unpack = false;
  void assign(Frame&, const Value&) const;
};
struct For : Statement {
  Target target;
  const Expression *iterable, *condition = nullptr;
  bool recursive = false;
  Block body, otherwise;
  Flow execute(Frame&) const override;
  void run(Frame& frame, const Value& over, int64_t depth) const;
};
struct Set : Statement {
  Target target;
  const Expression* value;
  Flow execute(Frame&) const override;
};
struct SetBlock : Statement {
  Target target;
  std::vector<const Filter*> filters;
  Block body;
  Flow execute(Frame&) const override;
};
struct FilterBlock : Statement {
  std::vector<const Filter*> filters;
  Block body;
  Flow execute(Frame&) const override;
};
struct With : Statement {
  std::vector<std::pair<Target, const Expression*>> values;
  Block body;
  Flow execute(Frame&) const override;
};
struct Macro : Statement {
  const std::string* name;
  std::vector<std::pair<const std::string*, const Expression*>>
      parameters;  // name and default; the default may be null
  Block body;
  Flow execute(Frame&) const override;
  Value call(Frame& frame, Scope* defined_in, const Arguments& given) const;
};
struct Generation : Statement {
  Block body;
  Flow execute(Frame&) const override;
};
struct Jump : Statement {
  Flow flow;
  Flow execute(Frame&) const override { return flow; }
};

}  // namespace hone::jinja
