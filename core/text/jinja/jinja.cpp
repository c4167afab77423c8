#include "core/text/jinja/jinja.h"

#include <algorithm>
#include <ctime>

#include "core/text/jinja/ast.h"
#include "core/text/jinja/parser.h"

namespace hone {

using namespace jinja;

struct JinjaTemplate::Impl {
  std::string name;
  Tree tree;
};

// Runs the action and puts the template's name before its errors.
template <class Action>
static void with_name(const std::string& name, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    if (name.empty()) throw;
    fail(name, ": ", error.what());
  }
}

JinjaTemplate::JinjaTemplate(std::string_view source, std::string_view name) : impl_(std::make_unique<Impl>()) {
  impl_->name = name;
  with_name(impl_->name, [&] { parse(source, impl_->tree); });
}
JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;

static constexpr int64_t kMaxRange = 100000;

static Value range(Heap& heap, const Arguments& a) {
  const size_t count = a.positional.size();
  if (count < 1 || count > 3) heap.fail("range takes one to three integers");
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < count; ++i) bounds[count == 1 ? 1 : i] = integer_or(heap, a[i], 0);
  const auto [start, stop, step] = bounds;
  if (step == 0) heap.fail("range: the step must not be 0");
  List out;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (static_cast<int64_t>(out.size()) == kMaxRange) heap.fail("range: more than ", kMaxRange, " items");
    out.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return heap.list(std::move(out));
}

static Value make_namespace(Heap& heap, const Arguments& a) {
  Space* space = heap.space();
  for (const auto& [name, value] : a.named) space->names.emplace_back(name, value);
  if (!a.positional.empty()) {
    if (!a[0].is(Kind::dict)) heap.fail("namespace takes name=value");
    for (const auto& [name, value] : a[0].dict()) space->names.emplace_back(text(heap, name), value);
  }
  return Value(space);
}

static Value make_dict(Heap& heap, const Arguments& a) {
  Dict out;
  if (!a.positional.empty() && a[0].is(Kind::dict)) out = a[0].dict();
  for (const auto& [name, value] : a.named) out.emplace_back(heap.string(std::string(name)), value);
  return heap.dict(std::move(out));
}

// Names of days and months are English in any locale.
static Value date(Heap& heap, const Arguments& a, int64_t today) {
  if (a.positional.size() != 1 || !a[0].is(Kind::string)) heap.fail("strftime_now takes a format");
  const std::time_t when = today;
  std::tm parts{};
  if (!gmtime_r(&when, &parts)) heap.fail("strftime_now: ", today, " is not a date");
  const std::string& format = a[0].string();
  if (format.empty()) return heap.string("");
  std::string out(std::min<size_t>(format.size() * 32, 1 << 16), '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &parts));
  return heap.string(std::move(out));
}

static void add_globals(Heap& heap, Scope& scope, int64_t today) {
  const auto add = [&](std::string_view name, auto body) {
    scope.names.emplace_back(
        name, heap.function(std::string(name), [&heap, body](const Arguments& a) { return body(heap, a); }));
  };
  add("range", range);
  add("namespace", make_namespace);
  add("dict", make_dict);
  add("strftime_now", [today](Heap& h, const Arguments& a) { return date(h, a, today); });
  add("raise_exception", [](Heap& h, const Arguments& a) -> Value { h.fail(text(h, a[0])); });
}

JinjaTemplate::Output JinjaTemplate::render(const Json& variables, int64_t today) const {
  Heap heap;
  std::deque<Scope> scopes;
  Scope& globals = scopes.emplace_back();
  add_globals(heap, globals, today);
  Scope& given = scopes.emplace_back(Scope{&globals, {}});
  for (const auto& [name, value] : variables.as_object("a template's variables"))
    given.names.emplace_back(name, from_json(heap, value));
  Scope& top = scopes.emplace_back(Scope{&given, {}});
  Output out;
  Frame frame{heap, &top, out.text, &out.generation, scopes};
  with_name(impl_->name, [&] { jinja::execute(impl_->tree.body, frame); });
  return out;
}

}  // namespace hone
