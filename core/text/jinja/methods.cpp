// Methods of strings, lists and dicts that do not modify them.
#include <algorithm>
#include <array>

#include "core/text/jinja/operators.h"
#include "core/text/jinja/routine.h"
#include "core/text/jinja/text.h"

namespace hone::jinja {
namespace {

using Args = const Arguments&;

const std::string kEmpty;

Value made(Heap& heap, std::string_view text) { return heap.string(std::string(text)); }

// Returns the set of characters to strip, or null for white space.
const std::string* among(Heap& heap, const Value& v) {
  return v.is(Kind::undefined) || v.is(Kind::none) ? nullptr : &string_or(heap, v, kEmpty);
}

int64_t limit_of(Heap& heap, const Value& v) { return integer_or(heap, v, -1); }

// Splits at runs of white space, from the right if from_right.
List words(Heap& heap, std::string_view rest, int64_t limit, bool from_right) {
  List out;
  rest = from_right ? strip_right(rest) : strip_left(rest);
  while (!rest.empty()) {
    if (limit == 0) {
      out.push_back(made(heap, rest));
      break;
    }
    size_t cut = 0;
    if (from_right) {
      cut = rest.size();
      while (cut > 0 && strip_right(rest.substr(0, cut)).size() == cut) --cut;
      out.push_back(made(heap, rest.substr(cut)));
      rest = strip_right(rest.substr(0, cut));
    } else {
      while (cut < rest.size() && !space_size(rest, cut)) cut += char_size(rest, cut);
      out.push_back(made(heap, rest.substr(0, cut)));
      rest = strip_left(rest.substr(cut));
    }
    --limit;
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

Value split(Heap& heap, const Value& self, Args a, bool from_right) {
  std::string_view rest = self.string();
  int64_t limit = limit_of(heap, a[1]);
  const std::string* separator = among(heap, a[0]);
  if (!separator) return heap.list(words(heap, rest, limit, from_right));
  if (separator->empty()) heap.fail("split: the separator must not be empty");
  List out;
  for (; limit != 0; --limit) {
    const size_t at = from_right ? rest.rfind(*separator) : rest.find(*separator);
    if (at == rest.npos) break;
    const size_t after = at + separator->size();
    out.push_back(made(heap, from_right ? rest.substr(after) : rest.substr(0, at)));
    rest = from_right ? rest.substr(0, at) : rest.substr(after);
  }
  out.push_back(made(heap, rest));
  if (from_right) std::reverse(out.begin(), out.end());
  return heap.list(std::move(out));
}

Value split_lines(Heap& heap, const Value& self, Args a) {
  std::string_view rest = self.string();
  List out;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find_first_of("\n\r\v\f\x1c\x1d\x1e"), rest.size());
    const size_t mark = end == rest.size() ? 0 : rest.substr(end, 2) == "\r\n" ? 2 : 1;
    out.push_back(made(heap, rest.substr(0, truth(a[0]) ? end + mark : end)));
    rest.remove_prefix(end + mark);
  }
  return heap.list(std::move(out));
}

// Returns whether any of the given string or tuple of strings is a prefix (suffix).
Value matches_end(Heap& heap, const Value& self, Args a, bool at_start) {
  const List one = {a[0]};
  const List& candidates = a[0].is(Kind::tuple) ? a[0].list() : one;
  return Value(std::any_of(candidates.begin(), candidates.end(), [&](const Value& v) {
    const std::string& end = string_or(heap, v, kEmpty);
    return at_start ? self.string().starts_with(end) : self.string().ends_with(end);
  }));
}

Value find_in(Heap& heap, const Value& self, Args a, bool from_right) {
  const std::string& wanted = string_or(heap, a[0], kEmpty);
  const size_t at = from_right ? self.string().rfind(wanted) : self.string().find(wanted);
  return Value(at == std::string::npos
                   ? int64_t{-1}
                   : static_cast<int64_t>(char_count(std::string_view(self.string()).substr(0, at))));
}

Value index_of(Heap& heap, const Value& self, Args a) {
  const Value at = find_in(heap, self, a, false);
  if (at.integer() < 0) heap.fail("index: the text is not found");
  return at;
}

Value count(Heap& heap, const Value& self, Args a) {
  const std::string& wanted = string_or(heap, a[0], kEmpty);
  if (wanted.empty()) return Value(static_cast<int64_t>(char_count(self.string()) + 1));
  int64_t found = 0;
  for (size_t at = self.string().find(wanted); at != std::string::npos;
       at = self.string().find(wanted, at + wanted.size()))
    ++found;
  return Value(found);
}

Value partition(Heap& heap, const Value& self, Args a, bool from_right) {
  const std::string& separator = string_or(heap, a[0], kEmpty);
  const std::string_view text = self.string();
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  if (at == text.npos) {
    const Value empty = made(heap, "");
    return heap.tuple(from_right ? List{empty, empty, self} : List{self, empty, empty});
  }
  return heap.tuple({made(heap, text.substr(0, at)), a[0], made(heap, text.substr(at + separator.size()))});
}

Value without(Heap& heap, const Value& self, Args a, bool at_start) {
  std::string_view text = self.string();
  const std::string& end = string_or(heap, a[0], kEmpty);
  if (at_start ? text.starts_with(end) : text.ends_with(end))
    at_start ? text.remove_prefix(end.size()) : text.remove_suffix(end.size());
  return made(heap, text);
}

// Pads to a width in characters.
Value padded(Heap& heap, const Value& self, Args a, bool left, bool right) {
  const int64_t missing = integer_or(heap, a[0], 0) - static_cast<int64_t>(char_count(self.string()));
  const std::string fill = string_or(heap, a[1], " ");
  std::string out;
  const int64_t before = missing <= 0 || !left ? 0
                         : right               ? missing / 2 + (missing & integer_or(heap, a[0], 0) & 1)
                                               : missing;
  for (int64_t i = 0; i < before; ++i) heap.append(out, fill);
  heap.append(out, self.string());
  for (int64_t i = before; right && i < missing; ++i) heap.append(out, fill);
  return heap.string(std::move(out));
}

Value title(Heap& heap, const Value& self, Args) {
  std::string out = lower(self.string());
  for (size_t i = 0; i < out.size(); ++i) {
    const bool after_letter = i > 0 && (is_letter(out[i - 1]) || static_cast<unsigned char>(out[i - 1]) >= 0x80);
    if (!after_letter) out[i] = upper(out.substr(i, 1))[0];
  }
  return heap.string(std::move(out));
}

template <class Fact>
Value every(const Value& self, Fact fact) {
  return Value(!self.string().empty() && std::all_of(self.string().begin(), self.string().end(), fact));
}

bool digit(char c) { return c >= '0' && c <= '9'; }
bool letter(char c) { return is_letter(c) || static_cast<unsigned char>(c) >= 0x80; }

// Formats "{} {0} {name}": replacement fields without format specifications.
Value format(Heap& heap, const Value& self, Args a) {
  const std::string& text = self.string();
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
      heap.append(out, text.substr(i++, 1));
    } else if (c == '{') {
      const size_t end = text.find('}', i);
      const std::string field = text.substr(i + 1, end == std::string::npos ? 0 : end - i - 1);
      const bool position = field.size() < 4 && std::all_of(field.begin(), field.end(), digit);
      const size_t index = field.empty() ? next++ : position ? std::stoul(field) : 0;
      const Value* named = position ? nullptr : a.find(field);
      if (end == std::string::npos || (position ? index >= a.positional.size() : !named))
        heap.fail("format: no value for {", field, "}");
      append_text(heap, out, named ? *named : a.positional[index]);
      i = end;
    } else {
      heap.append(out, std::string_view(&text[i], 1));
    }
  }
  return heap.string(std::move(out));
}

template <const char* filter>
Value as_filter(Heap& heap, const Value& self, Args a) {
  return call_filter(heap, filter, self, a);
}
constexpr char kReplace[] = "replace", kItems[] = "items", kCapitalize[] = "capitalize", kUpper[] = "upper",
               kLower[] = "lower";

Value join(Heap& heap, const Value& self, Args a) { return call_filter(heap, "join", a[0], Arguments{{self}, {}}); }

constexpr auto kStringMethods = std::to_array<Routine>({
    {"capitalize", "", as_filter<kCapitalize>},
    {"center", "width! fillchar", [](Heap& h, const Value& v, Args a) { return padded(h, v, a, true, true); }},
    {"count", "sub!", count},
    {"endswith", "suffix!", [](Heap& h, const Value& v, Args a) { return matches_end(h, v, a, false); }},
    {"find", "sub!", [](Heap& h, const Value& v, Args a) { return find_in(h, v, a, false); }},
    {"format", "...", format},
    {"index", "sub!", index_of},
    {"isalnum", "", [](Heap&, const Value& v, Args) { return every(v, [](char c) { return letter(c) || digit(c); }); }},
    {"isalpha", "", [](Heap&, const Value& v, Args) { return every(v, letter); }},
    {"isdigit", "", [](Heap&, const Value& v, Args) { return every(v, digit); }},
    {"islower", "", [](Heap& h, const Value& v, Args) { return Value(call_test(h, "lower", v, {})); }},
    {"isspace", "",
     [](Heap&, const Value& v, Args) { return Value(!v.string().empty() && strip_left(v.string()).empty()); }},
    {"isupper", "", [](Heap& h, const Value& v, Args) { return Value(call_test(h, "upper", v, {})); }},
    {"join", "iterable!", join},
    {"ljust", "width! fillchar", [](Heap& h, const Value& v, Args a) { return padded(h, v, a, false, true); }},
    {"lower", "", as_filter<kLower>},
    {"lstrip", "chars",
     [](Heap& h, const Value& v, Args a) { return made(h, strip_left(v.string(), among(h, a[0]))); }},
    {"partition", "sep!", [](Heap& h, const Value& v, Args a) { return partition(h, v, a, false); }},
    {"removeprefix", "prefix!", [](Heap& h, const Value& v, Args a) { return without(h, v, a, true); }},
    {"removesuffix", "suffix!", [](Heap& h, const Value& v, Args a) { return without(h, v, a, false); }},
    {"replace", "old! new! count", as_filter<kReplace>},
    {"rfind", "sub!", [](Heap& h, const Value& v, Args a) { return find_in(h, v, a, true); }},
    {"rjust", "width! fillchar", [](Heap& h, const Value& v, Args a) { return padded(h, v, a, true, false); }},
    {"rpartition", "sep!", [](Heap& h, const Value& v, Args a) { return partition(h, v, a, true); }},
    {"rsplit", "sep maxsplit", [](Heap& h, const Value& v, Args a) { return split(h, v, a, true); }},
    {"rstrip", "chars",
     [](Heap& h, const Value& v, Args a) { return made(h, strip_right(v.string(), among(h, a[0]))); }},
    {"split", "sep maxsplit", [](Heap& h, const Value& v, Args a) { return split(h, v, a, false); }},
    {"splitlines", "keepends", split_lines},
    {"startswith", "prefix!", [](Heap& h, const Value& v, Args a) { return matches_end(h, v, a, true); }},
    {"strip", "chars",
     [](Heap& h, const Value& v,
        Args a) { return made(h, strip_left(strip_right(v.string(), among(h, a[0])), among(h, a[0]))); }},
    {"title", "", title},
    {"upper", "", as_filter<kUpper>},
});

Value keys(Heap& heap, const Value& self, Args) { return heap.list(items(heap, self)); }

Value values(Heap& heap, const Value& self, Args) {
  List out;
  for (const auto& [key, item] : self.dict()) out.push_back(item);
  return heap.list(std::move(out));
}

Value get(Heap& heap, const Value& self, Args a) {
  if (const Value* found = find(heap, self.dict(), a[0])) return *found;
  return a[1].is(Kind::undefined) ? Value::none() : a[1];
}

constexpr auto kDictMethods = std::to_array<Routine>({
    {"copy", "", [](Heap&, const Value& self, Args) { return self; }},
    {"get", "key! default", get},
    {"items", "", as_filter<kItems>},
    {"keys", "", keys},
    {"values", "", values},
});

Value list_index(Heap& heap, const Value& self, Args a) {
  const List& list = self.list();
  const auto it = std::find_if(list.begin(), list.end(), [&](const Value& v) { return equal(heap, v, a[0]); });
  if (it == list.end()) heap.fail("index: the item is not in the list");
  return Value(static_cast<int64_t>(it - list.begin()));
}

Value list_count(Heap& heap, const Value& self, Args a) {
  const List& list = self.list();
  return Value(static_cast<int64_t>(
      std::count_if(list.begin(), list.end(), [&](const Value& v) { return equal(heap, v, a[0]); })));
}

constexpr auto kListMethods = std::to_array<Routine>({
    {"copy", "", [](Heap&, const Value& self, Args) { return self; }},
    {"count", "value!", list_count},
    {"index", "value!", list_index},
});

template <size_t n>
const Routine* find_in(const std::array<Routine, n>& table, std::string_view name) {
  const auto* it =
      std::find_if(table.begin(), table.end(), [&](const Routine& routine) { return routine.name == name; });
  return it == table.end() ? nullptr : it;
}

}  // namespace

const Routine* find_method(Kind self, std::string_view name) {
  if (self == Kind::string) return find_in(kStringMethods, name);
  if (self == Kind::dict) return find_in(kDictMethods, name);
  return self == Kind::list || self == Kind::tuple ? find_in(kListMethods, name) : nullptr;
}

}  // namespace hone::jinja
