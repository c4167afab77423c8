// Filters of lists and dicts: items, sort, map, selectattr and others.
#include <algorithm>
#include <array>

#include "core/text/jinja/filters.h"
#include "core/text/jinja/text.h"

namespace hone::jinja {
namespace {

using Args = const Arguments&;

// Returns item.a.0.b for the attribute "a.0.b" (or a position). Items come before methods.
Value member(Heap& heap, const Value& item, const Value& path) {
  if (!path.is(Kind::string)) return subscript(heap, item, path);
  Value out = item;
  for (std::string_view rest = path.string(); !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const bool position = part.size() < 10 && !part.empty() &&
                          std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    out =
        subscript(heap, out, position ? Value(int64_t{std::stol(std::string(part))}) : heap.string(std::string(part)));
  }
  return out;
}

// Returns the sort key: the attribute if one is given, in lower case unless case counts.
Value sort_key(Heap& heap, const Value& item, const Value& attribute, bool case_sensitive) {
  const Value key = attribute.is(Kind::undefined) || attribute.is(Kind::none) ? item : member(heap, item, attribute);
  return !case_sensitive && key.is(Kind::string) ? heap.string(lower(key.string())) : key;
}

Value sorted(Heap& heap, const List& list, bool reverse, bool case_sensitive, const Value& attribute) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : list) keyed.emplace_back(sort_key(heap, item, attribute, case_sensitive), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(heap, b.first, a.first) : less(heap, a.first, b.first);
  });
  List out;
  for (const auto& [key, item] : keyed) out.push_back(item);
  return heap.list(std::move(out));
}

Value sort(Heap& heap, const Value& v, Args a) { return sorted(heap, items(heap, v), truth(a[0]), truth(a[1]), a[2]); }

Value pairs(Heap& heap, const Value& v, Args) {
  List out;
  if (!v.is(Kind::dict) && !v.is(Kind::undefined)) heap.fail("items needs a mapping, not '", type_name(v), "'");
  if (v.is(Kind::dict)) {
    for (const auto& [key, item] : v.dict()) out.push_back(heap.tuple({key, item}));
  }
  return heap.list(std::move(out));
}

Value dictsort(Heap& heap, const Value& v, Args a) {
  const std::string by = string_or(heap, a[1], "key");
  if (by != "key" && by != "value") heap.fail("dictsort: by must be key or value, not '", by, "'");
  return sorted(heap, pairs(heap, v, a).list(), truth(a[2]), truth(a[0]), Value(int64_t{by == "value"}));
}

Value first(Heap& heap, const Value& v, Args) {
  const List& list = items(heap, v);
  return list.empty() ? Value() : list.front();
}

Value last(Heap& heap, const Value& v, Args) {
  const List& list = items(heap, v);
  return list.empty() ? Value() : list.back();
}

Value join(Heap& heap, const Value& v, Args a) {
  std::string out;
  const std::string separator = text(heap, a[0]);
  bool later = false;
  for (const Value& item : items(heap, v)) {
    if (std::exchange(later, true)) heap.append(out, separator);
    append_text(heap, out, a[1].is(Kind::undefined) || a[1].is(Kind::none) ? item : member(heap, item, a[1]));
  }
  return heap.string(std::move(out));
}

Value reverse(Heap& heap, const Value& v, Args) {
  List out(items(heap, v));
  std::reverse(out.begin(), out.end());
  if (!v.is(Kind::string)) return heap.list(std::move(out));
  std::string text;
  for (const Value& one : out) text += one.string();
  return heap.string(std::move(text));
}

Value sum(Heap& heap, const Value& v, Args a) {
  Value out = a[1].is(Kind::undefined) ? Value(int64_t{0}) : a[1];
  for (const Value& item : items(heap, v))
    out = add(heap, out, a[0].is(Kind::undefined) ? item : member(heap, item, a[0]));
  return out;
}

Value extreme(Heap& heap, const Value& v, Args a, bool greatest) {
  const Value order = sorted(heap, items(heap, v), greatest, truth(a[0]), a[1]);
  return order.list().empty() ? Value() : order.list().front();
}

Value unique(Heap& heap, const Value& v, Args a) {
  List keys, out;
  for (const Value& item : items(heap, v)) {
    const Value key = sort_key(heap, item, a[1], truth(a[0]));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& known) { return equal(heap, known, key); })) continue;
    keys.push_back(key);
    out.push_back(item);
  }
  return heap.list(std::move(out));
}

Value batch(Heap& heap, const Value& v, Args a) {
  const int64_t size = integer_or(heap, a[0], 0);
  if (size < 1 || size > 100000) heap.fail("batch: the size must be from 1 to 100000, not ", size);
  List out, row;
  for (const Value& item : items(heap, v)) {
    row.push_back(item);
    if (static_cast<int64_t>(row.size()) == size) out.push_back(heap.list(std::exchange(row, {})));
  }
  if (!row.empty() && !a[1].is(Kind::undefined) && !a[1].is(Kind::none)) row.resize(static_cast<size_t>(size), a[1]);
  if (!row.empty()) out.push_back(heap.list(std::move(row)));
  return heap.list(std::move(out));
}

Arguments rest_of(Args a, size_t skip) {
  Arguments out = a;
  out.positional.erase(out.positional.begin(),
                       out.positional.begin() + static_cast<std::ptrdiff_t>(std::min(skip, out.positional.size())));
  return out;
}

// map("filter", arguments...) or map(attribute="name", default=value).
Value map(Heap& heap, const Value& v, Args a) {
  List out;
  const Value* path = a.find("attribute");
  const Value* otherwise = a.find("default");
  if (!path && a.positional.empty()) heap.fail("map needs a filter's name or attribute=");
  if (!truth(v)) return heap.list({});  // also for none
  for (const Value& item : items(heap, v)) {
    Value mapped = path ? member(heap, item, *path) : call_filter(heap, string_or(heap, a[0], ""), item, rest_of(a, 1));
    if (path && otherwise && mapped.is(Kind::undefined)) mapped = *otherwise;
    out.push_back(mapped);
  }
  return heap.list(std::move(out));
}

// Selects items by a test on them (or on their attribute), or by truth without a test. Keeps items with the result
// `wanted`.
Value chosen(Heap& heap, const Value& v, Args a, bool by_attribute, bool wanted) {
  const size_t skip = by_attribute ? 1 : 0;
  if (a.positional.size() < skip) heap.fail("selectattr and rejectattr need an attribute");
  if (!truth(v)) return heap.list({});  // also for none
  List out;
  for (const Value& item : items(heap, v)) {
    const Value tested = by_attribute ? member(heap, item, a[0]) : item;
    const bool yes = a.positional.size() > skip
                         ? call_test(heap, string_or(heap, a[skip], ""), tested, rest_of(a, skip + 1))
                         : truth(tested);
    if (yes == wanted) out.push_back(item);
  }
  return heap.list(std::move(out));
}

Value attr(Heap& heap, const Value& v, Args a) {
  const std::string& name = string_or(heap, a[0], "");
  return v.is(Kind::dict) && !find_method(Kind::dict, name) ? Value(&a.positional[0].string(), Kind::undefined)
                                                            : attribute(heap, v, name);
}

constexpr auto kFilters = std::to_array<Routine>({
    {"attr", "name!", attr},
    {"batch", "linecount! fill_with", batch},
    {"dictsort", "case_sensitive by reverse", dictsort},
    {"first", "", first},
    {"items", "", pairs},
    {"join", "d attribute", join},
    {"last", "", last},
    {"list", "", [](Heap& h, const Value& v, Args) { return h.list(items(h, v)); }},
    {"map", "...", map},
    {"max", "case_sensitive attribute", [](Heap& h, const Value& v, Args a) { return extreme(h, v, a, true); }},
    {"min", "case_sensitive attribute", [](Heap& h, const Value& v, Args a) { return extreme(h, v, a, false); }},
    {"reject", "...", [](Heap& h, const Value& v, Args a) { return chosen(h, v, a, false, false); }},
    {"rejectattr", "...", [](Heap& h, const Value& v, Args a) { return chosen(h, v, a, true, false); }},
    {"reverse", "", reverse},
    {"select", "...", [](Heap& h, const Value& v, Args a) { return chosen(h, v, a, false, true); }},
    {"selectattr", "...", [](Heap& h, const Value& v, Args a) { return chosen(h, v, a, true, true); }},
    {"sort", "reverse case_sensitive attribute", sort},
    {"sum", "attribute start", sum},
    {"unique", "case_sensitive attribute", unique},
});

}  // namespace

const Routine* find_list_filter(std::string_view name) {
  const auto* it =
      std::find_if(kFilters.begin(), kFilters.end(), [&](const Routine& routine) { return routine.name == name; });
  return it == kFilters.end() ? nullptr : it;
}

}  // namespace hone::jinja
