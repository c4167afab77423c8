#pragma once
// Values of templates as Python would hold them, and the heap of one rendering that owns and bounds them: strings,
// lists and dicts never change once made, a namespace() does. A template that takes too much work, memory or depth ends
// with an Error.
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/io/json.h"

namespace hone::jinja {

class Value;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<Value, Value>>;  // in the order written
struct Function;
struct Space;

enum class Kind : uint8_t { undefined, none, boolean, integer, real, string, list, tuple, dict, space, function };

// Sixteen bytes, copied freely; what it points to belongs to the heap, the template or the caller's JSON.
class Value {
 public:
  Value() : Value(static_cast<const std::string*>(nullptr), Kind::undefined) {}
  explicit Value(const std::string* v, Kind kind = Kind::string) : kind_(kind) {
    as_.string = v;
  }  // or undefined: the name looked for
  explicit Value(bool v) : kind_(Kind::boolean) { as_.integer = v; }
  explicit Value(int64_t v) : kind_(Kind::integer) { as_.integer = v; }
  explicit Value(double v) : kind_(Kind::real) { as_.real = v; }
  explicit Value(const List* v, Kind kind = Kind::list) : kind_(kind) { as_.list = v; }
  explicit Value(const Dict* v) : kind_(Kind::dict) { as_.dict = v; }
  explicit Value(Space* v) : kind_(Kind::space) { as_.space = v; }
  explicit Value(const Function* v) : kind_(Kind::function) { as_.function = v; }
  Value(const char*) = delete;
  static Value none() { return Value(static_cast<const std::string*>(nullptr), Kind::none); }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }  // True counts as 1
  bool is_number() const { return is_integral() || kind_ == Kind::real; }

  // Of the kind that holds it.
  int64_t integer() const { return as_.integer; }
  double number() const { return kind_ == Kind::real ? as_.real : static_cast<double>(as_.integer); }
  const std::string& string() const {
    return *as_.string;
  }  // NOLINT(clang-analyzer-core.uninitialized.UndefReturn): kind_ says it is there
  const List& list() const { return *as_.list; }
  const Dict& dict() const { return *as_.dict; }
  Space& space() const { return *as_.space; }
  const Function& function() const { return *as_.function; }
  std::string_view missing() const { return as_.string ? std::string_view(*as_.string) : "value"; }  // of undefined
  bool same_object(const Value& other) const { return kind_ == other.kind_ && as_.integer == other.as_.integer; }

 private:
  Kind kind_;
  union {
    int64_t integer;
    double real;
    const std::string* string;
    const List* list;
    const Dict* dict;
    Space* space;
    const Function* function;
  } as_;
};

struct Arguments {
  List positional;
  std::vector<std::pair<std::string_view, Value>> named;
  // Undefined where absent.
  Value operator[](size_t i) const { return i < positional.size() ? positional[i] : Value(); }
  const Value* find(std::string_view name) const;
};

struct Function {
  std::string name;
  std::function<Value(const Arguments&)> call;
};

// A namespace() or a loop: names that change.
struct Space {
  std::vector<std::pair<std::string, Value>> names;
  bool assignable = true;
  const Function* call = nullptr;
  Value* find(std::string_view name);
};

class Heap {
 public:
  Value string(std::string text);
  Value list(List items);
  Value tuple(List items);
  Value dict(Dict entries);
  Space* space();
  Value function(std::string name, std::function<Value(const Arguments&)> call);

  // Counts work (about one unit a byte copied or compared); too much is an Error.
  void spend(size_t work);
  // out += piece, bounded.
  void append(std::string& out, std::string_view piece);
  // One level deeper while it lives.
  class Depth {
   public:
    explicit Depth(Heap& heap);
    ~Depth() { --heap_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Heap& heap_;
  };

  // An Error that names the line being evaluated.
  template <class... Words>
  [[noreturn]] void fail(const Words&... words) const {
    hone::fail("template line ", line, ": ", words...);
  }
  int line = 1;

 private:
  void hold(size_t bytes);
  std::deque<std::string> strings_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Space> spaces_;
  std::deque<Function> functions_;
  size_t held_ = 0, work_ = 0, depth_ = 0;
};

// JSON as a value; its strings stay where they are.
Value from_json(Heap& heap, const Json& json);

std::string_view type_name(const Value& v);  // Python's
bool truth(const Value& v);
bool equal(Heap& heap, const Value& a, const Value& b);
bool less(Heap& heap, const Value& a, const Value& b);  // Error where Python has no order
const Value* find(Heap& heap, const Dict& dict, const Value& key);

// str(v), appended or whole; undefined is empty.
void append_text(Heap& heap, std::string& out, const Value& v);
std::string text(Heap& heap, const Value& v);
// json.dumps as Hugging Face configures it (non-ASCII as it is, keys in order unless sort_keys); indent < 0: one line.
struct JsonStyle {
  int64_t indent = -1;
  std::string item = ", ", key = ": ";
  bool ascii = false, sort_keys = false;
};
void append_json(Heap& heap, std::string& out, const Value& v, const JsonStyle& style, int64_t level = 0);

// What a loop walks: items, keys of a dict, characters; nothing for undefined. Error for what is not iterable.
const List& items(Heap& heap, const Value& v);
size_t length(Heap& heap, const Value& v);
Value call(Heap& heap, const Value& callee, const Arguments& arguments);

}  // namespace hone::jinja
