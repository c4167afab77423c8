#include "core/text/jinja/value.h"

#include <algorithm>

#include "core/text/jinja/text.h"

namespace hone::jinja {

static constexpr size_t kMaxWork = size_t{1} << 28;
static constexpr size_t kMaxHeld = size_t{256} << 20;
static constexpr size_t kMaxText = size_t{64} << 20;
static constexpr size_t kMaxDepth = 500;

void Heap::spend(size_t work) {
  work_ += std::min(work, kMaxWork);
  if (work_ > kMaxWork) fail("the template takes too much work");
}

void Heap::hold(size_t bytes) {
  held_ += bytes + 64;
  spend(bytes / 8 + 16);
  if (held_ > kMaxHeld) fail("the template takes more than ", kMaxHeld >> 20, " MiB of memory");
}

void Heap::append(std::string& out, std::string_view piece) {
  spend(piece.size());
  if (out.size() + piece.size() > kMaxText) fail("the template writes more than ", kMaxText >> 20, " MiB");
  out += piece;
}

Heap::Depth::Depth(Heap& heap) : heap_(heap) {
  heap_.spend(32);
  if (heap_.depth_ >= kMaxDepth) heap_.fail("nested more than ", kMaxDepth, " levels deep");
  ++heap_.depth_;
}

Value Heap::string(std::string text) { return hold(text.size()), Value(&strings_.emplace_back(std::move(text))); }
Value Heap::list(List items) {
  return hold(items.size() * sizeof(Value)), Value(&lists_.emplace_back(std::move(items)));
}
Value Heap::tuple(List items) {
  return hold(items.size() * sizeof(Value)), Value(&lists_.emplace_back(std::move(items)), Kind::tuple);
}
Value Heap::dict(Dict entries) {
  return hold(entries.size() * 2 * sizeof(Value)), Value(&dicts_.emplace_back(std::move(entries)));
}
Space* Heap::space() { return hold(sizeof(Space)), &spaces_.emplace_back(); }
Value Heap::function(std::string name, std::function<Value(const Arguments&)> call) {
  hold(sizeof(Function));
  return Value(&functions_.emplace_back(Function{std::move(name), std::move(call)}));
}

const Value* Arguments::find(std::string_view name) const {
  const auto it = std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
  return it == named.end() ? nullptr : &it->second;
}

Value* Space::find(std::string_view name) {
  const auto it = std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.first == name; });
  return it == names.end() ? nullptr : &it->second;
}

Value from_json(Heap& heap, const Json& json) {
  const Heap::Depth depth(heap);
  if (json.is_bool()) return Value(json.as_bool());
  if (json.is_int()) return Value(json.as_int());
  if (json.is_number()) return Value(json.as_double());
  if (json.is_string()) return Value(&json.as_string());
  if (json.is_array()) {
    List out;
    for (const Json& item : json.as_array()) out.push_back(from_json(heap, item));
    return heap.list(std::move(out));
  }
  if (json.is_object()) {
    Dict out;
    for (const auto& [key, item] : json.as_object()) out.emplace_back(Value(&key), from_json(heap, item));
    return heap.dict(std::move(out));
  }
  return Value::none();
}

std::string_view type_name(const Value& v) {
  static constexpr std::string_view names[] = {"Undefined", "NoneType", "bool", "int",       "float",   "str",
                                               "list",      "tuple",    "dict", "namespace", "function"};
  return names[static_cast<size_t>(v.kind())];
}

bool truth(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return v.integer() != 0;
    case Kind::real:
      return v.number() != 0;
    case Kind::string:
      return !v.string().empty();
    case Kind::list:
    case Kind::tuple:
      return !v.list().empty();
    case Kind::dict:
      return !v.dict().empty();
    case Kind::space:
    case Kind::function:
      return true;
  }
  return true;
}

bool equal(Heap& heap, const Value& a, const Value& b) {
  const Heap::Depth depth(heap);
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      return heap.spend(std::min(a.string().size(), b.string().size())), a.string() == b.string();
    case Kind::list:
    case Kind::tuple:
      if (a.list().size() != b.list().size()) return false;
      for (size_t i = 0; i < a.list().size(); ++i) {
        if (!equal(heap, a.list()[i], b.list()[i])) return false;
      }
      return true;
    case Kind::dict:
      if (a.dict().size() != b.dict().size()) return false;
      for (const auto& [key, item] : a.dict()) {
        const Value* other = find(heap, b.dict(), key);
        if (!other || !equal(heap, item, *other)) return false;
      }
      return true;
    default:
      return a.same_object(b);
  }
}

bool less(Heap& heap, const Value& a, const Value& b) {
  const Heap::Depth depth(heap);
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is(Kind::string) && b.is(Kind::string))
    return heap.spend(std::min(a.string().size(), b.string().size())), a.string() < b.string();
  if (a.is_sequence() && a.kind() == b.kind()) {
    const size_t common = std::min(a.list().size(), b.list().size());
    for (size_t i = 0; i < common; ++i) {
      if (!equal(heap, a.list()[i], b.list()[i])) return less(heap, a.list()[i], b.list()[i]);
    }
    return a.list().size() < b.list().size();
  }
  heap.fail("'", type_name(a), "' and '", type_name(b), "' have no order");
}

const Value* find(Heap& heap, const Dict& dict, const Value& key) {
  for (const auto& [name, item] : dict) {
    if (equal(heap, name, key)) return &item;
  }
  return nullptr;
}

// Writes a member of a list or dict as Python's repr() does: strings quoted.
static void append_quoted(Heap& heap, std::string& out, const Value& v) {
  if (v.is(Kind::string)) return heap.append(out, python_quoted(v.string()));
  if (v.is(Kind::undefined)) return heap.append(out, "Undefined");
  append_text(heap, out, v);
}

void append_text(Heap& heap, std::string& out, const Value& v) {
  const Heap::Depth depth(heap);
  switch (v.kind()) {
    case Kind::undefined:
      return;
    case Kind::none:
      return heap.append(out, "None");
    case Kind::boolean:
      return heap.append(out, v.integer() ? "True" : "False");
    case Kind::integer:
      return heap.append(out, std::to_string(v.integer()));
    case Kind::real:
      return heap.append(out, python_number(v.number()));
    case Kind::string:
      return heap.append(out, v.string());
    case Kind::space:
      return heap.append(out, "<namespace>");
    case Kind::function:
      return heap.append(out, "<function " + v.function().name + ">");
    case Kind::list:
    case Kind::tuple: {
      const bool tuple = v.is(Kind::tuple);
      heap.append(out, tuple ? "(" : "[");
      for (size_t i = 0; i < v.list().size(); ++i) {
        if (i > 0) heap.append(out, ", ");
        append_quoted(heap, out, v.list()[i]);
      }
      return heap.append(out, !tuple ? "]" : v.list().size() == 1 ? ",)" : ")");
    }
    case Kind::dict: {
      heap.append(out, "{");
      std::string_view separator;
      for (const auto& [key, item] : v.dict()) {
        heap.append(out, separator);
        append_quoted(heap, out, key);
        heap.append(out, ": ");
        append_quoted(heap, out, item);
        separator = ", ";
      }
      return heap.append(out, "}");
    }
  }
}

std::string text(Heap& heap, const Value& v) {
  std::string out;
  append_text(heap, out, v);
  return out;
}

const List& items(Heap& heap, const Value& v) {
  List out;
  switch (v.kind()) {
    case Kind::list:
    case Kind::tuple:
      return v.list();
    case Kind::undefined:
      break;
    case Kind::dict:
      for (const auto& [key, item] : v.dict()) out.push_back(key);
      break;
    case Kind::string:
      for (const std::string_view one : chars(v.string())) out.push_back(heap.string(std::string(one)));
      break;
    default:
      heap.fail("'", type_name(v), "' is not iterable");
  }
  return heap.list(std::move(out)).list();
}

size_t length(Heap& heap, const Value& v) {
  switch (v.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return heap.spend(v.string().size()), char_count(v.string());
    case Kind::list:
    case Kind::tuple:
      return v.list().size();
    case Kind::dict:
      return v.dict().size();
    default:
      heap.fail("'", type_name(v), "' has no length");
  }
}

Value call(Heap& heap, const Value& callee, const Arguments& arguments) {
  const Heap::Depth depth(heap);
  if (callee.is(Kind::undefined)) heap.fail("'", callee.missing(), "' is undefined and cannot be called");
  const Function* function = callee.is(Kind::function) ? &callee.function()
                             : callee.is(Kind::space)  ? callee.space().call
                                                       : nullptr;
  if (!function) heap.fail("'", type_name(callee), "' cannot be called");
  return function->call(arguments);
}

}  // namespace hone::jinja
