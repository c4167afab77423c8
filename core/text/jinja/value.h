#pragma once
// Values of templates with Python's semantics, and the heap of one rendering that owns them. Strings, lists and dicts
// are immutable; a namespace() is not. A template that exceeds the limits of work, memory or depth ends with an Error.
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
using Dict = std::vector<std::pair<Value, Value>>;  // in order of insertion
struct Function;
struct Space;

enum class Kind : uint8_t { undefined, none, boolean, integer, real, string, list, tuple, dict, space, function };

// 16 bytes, cheap to copy. The heap, the template or the caller's JSON owns the data that it points to.
class Value {
 public:
  Value() : Value(static_cast<const std::string*>(nullptr), Kind::undefined) {}
  // kind may be undefined; v is then the name that was not found.
  explicit Value(const std::string* v, Kind kind = Kind::string) : kind_(kind) { as_.string = v; }
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

  // Each getter requires the matching kind.
  int64_t integer() const { return as_.integer; }
  double number() const { return kind_ == Kind::real ? as_.real : static_cast<double>(as_.integer); }
  // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.UndefReturn): the kind is checked before
  const std::string& string() const { return *as_.string; }
  const List& list() const { return *as_.list; }
  const Dict& dict() const { return *as_.dict; }
  Space& space() const { return *as_.space; }
  const Function& function() const { return *as_.function; }
  std::string_view missing() const {
    return as_.string ? std::string_view(*as_.string) : "value";
  }  // the name of an undefined value
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
  // Returns undefined if there is no such argument.
  Value operator[](size_t i) const { return i < positional.size() ? positional[i] : Value(); }
  const Value* find(std::string_view name) const;
};

struct Function {
  std::string name;
  std::function<Value(const Arguments&)> call;
};

// A namespace() or a loop variable: an object with mutable members.
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

  // Counts work, about one unit per byte copied or compared. Throws an Error past the limit.
  void spend(size_t work);
  // Appends a piece to `out`. Throws an Error past the size limit.
  void append(std::string& out, std::string_view piece);
  // Counts one level of nesting during its lifetime. Throws an Error past the limit.
  class Depth {
   public:
    explicit Depth(Heap& heap);
    ~Depth() { --heap_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Heap& heap_;
  };

  // Throws an Error that names the line being evaluated.
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

// Converts JSON to a value. Strings are not copied, so the JSON must outlive the value.
Value from_json(Heap& heap, const Json& json);

std::string_view type_name(const Value& v);  // the name of Python's type
bool truth(const Value& v);
bool equal(Heap& heap, const Value& a, const Value& b);
bool less(Heap& heap, const Value& a, const Value& b);  // Error if Python does not order the two
const Value* find(Heap& heap, const Dict& dict, const Value& key);

// Python's str(v), appended to `out` or returned. Undefined is empty.
void append_text(Heap& heap, std::string& out, const Value& v);
std::string text(Heap& heap, const Value& v);
// json.dumps with Hugging Face's settings: non-ASCII unchanged, keys in order unless sort_keys. indent < 0: one line.
struct JsonStyle {
  int64_t indent = -1;
  std::string item = ", ", key = ": ";
  bool ascii = false, sort_keys = false;
};
void append_json(Heap& heap, std::string& out, const Value& v, const JsonStyle& style, int64_t level = 0);

// Returns the items that a loop visits: items of a list, keys of a dict, characters of a string, nothing for undefined.
// Throws an Error for a value that is not iterable.
const List& items(Heap& heap, const Value& v);
size_t length(Heap& heap, const Value& v);
Value call(Heap& heap, const Value& callee, const Arguments& arguments);

}  // namespace hone::jinja
