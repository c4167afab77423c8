#include "core/text/jinja/filters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/text/jinja/text.h"

namespace hone::jinja {
namespace {

using Args = const Arguments&;

// Replaces `old` in text, at most `limit` times; a negative limit replaces all.
std::string replaced(Heap& heap, const std::string& text, const std::string& old, const std::string& with,
                     int64_t limit) {
  std::string out;
  size_t at = 0;
  for (; limit != 0; --limit) {
    const size_t found = text.find(old, at);
    if (found == std::string::npos) break;
    heap.append(out, std::string_view(text).substr(at, found - at));
    heap.append(out, with);
    at = found + old.size();
    if (!old.empty()) continue;
    if (at >= text.size()) return out;
    const size_t one = char_size(text, at);
    heap.append(out, std::string_view(text).substr(at, one));
    at += one;
  }
  heap.append(out, std::string_view(text).substr(at));
  return out;
}

Value replace(Heap& heap, const Value& v, Args a) {
  const int64_t limit = a[2].is(Kind::none) ? -1 : integer_or(heap, a[2], -1);
  return heap.string(replaced(heap, text(heap, v), text(heap, a[0]), text(heap, a[1]), limit));
}

Value trim(Heap& heap, const Value& v, Args a) {
  const std::string input = text(heap, v);
  const std::string* among = a[0].is(Kind::string) ? &a[0].string() : nullptr;
  return heap.string(std::string(strip_left(strip_right(input, among), among)));
}

Value absolute(Heap& heap, const Value& v, Args) {
  if (v.is(Kind::real)) return Value(std::fabs(v.number()));
  return integer_or(heap, v, 0) < 0 ? negate(heap, v) : Value(v.integer());
}

Value otherwise(Heap& heap, const Value& v, Args a) {
  if (!v.is(Kind::undefined) && !(truth(a[1]) && !truth(v))) return v;
  return a[0].is(Kind::undefined) ? heap.string("") : a[0];
}

Value escape(Heap& heap, const Value& v, Args) {
  std::string out;
  for (const char c : text(heap, v)) {
    const size_t i = std::string_view("&<>'\"").find(c);
    static constexpr std::string_view names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    heap.append(out, i == std::string_view::npos ? std::string_view(&c, 1) : names[i]);
  }
  return heap.string(std::move(out));
}

Value indent(Heap& heap, const Value& v, Args a) {
  std::string margin;
  if (a[0].is(Kind::string))
    margin = a[0].string();
  else
    for (int64_t i = integer_or(heap, a[0], 4); i > 0; --i) heap.append(margin, " ");
  const std::string input = text(heap, v);
  std::string out;
  for (size_t at = 0, line = 0; at <= input.size(); ++line) {
    const size_t end = std::min(input.find('\n', at), input.size());
    if (line > 0) heap.append(out, "\n");
    if (line == 0 ? truth(a[1]) : truth(a[2]) || end > at) heap.append(out, margin);
    heap.append(out, std::string_view(input).substr(at, end - at));
    at = end + 1;
  }
  return heap.string(std::move(out));
}

Value to_integer(Heap& heap, const Value& v, Args a) {
  const Value fallback = a[0].is(Kind::undefined) ? Value(int64_t{0}) : a[0];
  if (v.is_integral()) return Value(v.integer());
  double number = v.is(Kind::real) ? v.number() : NAN;
  if (v.is(Kind::string)) {
    std::string_view digits = strip_left(strip_right(v.string()));
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const int64_t base = integer_or(heap, a[1], 10);
    if (base < 2 || base > 36) heap.fail("int: the base must be from 2 to 36, not ", base);
    int64_t parsed = 0;
    const char* end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, parsed, static_cast<int>(base));
    if (read.ec == std::errc() && read.ptr == end) return Value(parsed);
    if (std::from_chars(digits.data(), end, number).ptr != end) number = NAN;
  }
  return std::fabs(number) < 9e18 ? Value(static_cast<int64_t>(number)) : fallback;
}

Value to_real(Heap&, const Value& v, Args a) {
  if (v.is_number()) return Value(v.number());
  if (v.is(Kind::string)) {
    std::string_view digits = strip_left(strip_right(v.string()));
    if (digits.starts_with('+')) digits.remove_prefix(1);
    double number = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (read.ec == std::errc() && read.ptr == digits.data() + digits.size()) return Value(number);
  }
  return a[0].is(Kind::undefined) ? Value(0.0) : a[0];
}

Value rounded(Heap& heap, const Value& v, Args a) {
  const int64_t places = integer_or(heap, a[0], 0);
  const std::string method = string_or(heap, a[1], "common");
  if (!v.is_number()) heap.fail("round needs a number, not '", type_name(v), "'");
  if (places < -300 || places > 300) heap.fail("round: the number of places must be from -300 to 300, not ", places);
  if (method == "common" && v.is_integral() && places >= 0) return Value(v.integer());
  const double scale = std::pow(10.0, static_cast<double>(places));
  if (method == "ceil") return Value(std::ceil(v.number() * scale) / scale);
  if (method == "floor") return Value(std::floor(v.number() * scale) / scale);
  if (method != "common") heap.fail("round: the method must be common, ceil or floor, not '", method, "'");
  if (places < 0) return Value(std::nearbyint(v.number() * scale) / scale);
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(places), v.number());
  return Value(std::strtod(buffer, nullptr));
}

Value title(Heap& heap, const Value& v, Args) {
  std::string out = lower(text(heap, v));
  for (size_t i = 0; i < out.size(); ++i) {
    const bool starts =
        i == 0 || space_size(out, i - 1) || std::string_view("-({[<").find(out[i - 1]) != std::string_view::npos;
    if (starts) out[i] = upper(out.substr(i, 1))[0];
  }
  return heap.string(std::move(out));
}

Value to_json(Heap& heap, const Value& v, Args a) {
  JsonStyle style;
  style.ascii = truth(a[0]);
  if (a[1].is_integral()) style.indent = std::clamp<int64_t>(a[1].integer(), 0, 64);
  if (style.indent >= 0) style.item = ",";
  if (a[2].is_sequence() && a[2].list().size() == 2) {
    style.item = text(heap, a[2].list()[0]);
    style.key = text(heap, a[2].list()[1]);
  }
  style.sort_keys = truth(a[3]);
  std::string out;
  append_json(heap, out, v, style);
  return heap.string(std::move(out));
}

Value words(Heap& heap, const Value& v, Args) {
  int64_t count = 0;
  bool inside = false;
  for (const char c : text(heap, v)) {
    const bool word = is_letter(c) || (c >= '0' && c <= '9') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
    count += word && !inside;
    inside = word;
  }
  return Value(count);
}

// Formats one printf conversion (d i s r f x o c) with flags, width and precision.
void convert(Heap& heap, std::string& out, const std::string& spec, char kind, const Value& v) {
  if (kind == 's' || kind == 'r') {
    if (spec != "%") heap.fail("format: only %", kind, " without width is supported");
    return heap.append(out, kind == 'r' && v.is(Kind::string) ? python_quoted(v.string()) : text(heap, v));
  }
  if (!v.is_number() || std::string_view("dixXoeEfFgG").find(kind) == std::string_view::npos) {
    heap.fail("format: %", kind, " does not go with '", type_name(v), "'");
  }
  char buffer[1024];
  const bool integral = std::string_view("dixXo").find(kind) != std::string_view::npos;
  if (integral) {
    const int64_t value = v.is_integral() ? v.integer() : static_cast<int64_t>(std::clamp(v.number(), -9e18, 9e18));
    std::snprintf(buffer, sizeof buffer, (spec + "ll" + kind).c_str(), static_cast<long long>(value));
  } else {
    std::snprintf(buffer, sizeof buffer, (spec + kind).c_str(), v.number());
  }
  heap.append(out, buffer);
}

Value format(Heap& heap, const Value& v, Args a) {
  const std::string& pattern = string_or(heap, v, "");
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      heap.append(out, std::string_view(&pattern[i], 1));
      continue;
    }
    const size_t end = pattern.find_first_not_of("0123456789.+- #", i + 1);
    if (end == std::string::npos || end - i > 6) heap.fail("format: '", pattern.substr(i, 8), "' is not a conversion");
    if (pattern[end] == '%') {
      heap.append(out, "%");
    } else {
      if (next >= a.positional.size()) heap.fail("format: fewer values than conversions");
      convert(heap, out, pattern.substr(i, end - i), pattern[end], a.positional[next++]);
    }
    i = end;
  }
  if (next < a.positional.size()) heap.fail("format: more values than conversions");
  return heap.string(std::move(out));
}

constexpr auto kFilters = std::to_array<Routine>({
    {"abs", "", absolute},
    {"capitalize", "", [](Heap& h, const Value& v, Args) { return h.string(capitalized(text(h, v))); }},
    {"center", "width",
     [](Heap& h, const Value& v, Args a) {
       const Value width = a[0].is(Kind::undefined) ? Value(int64_t{80}) : a[0];
       return run(h, *find_method(Kind::string, "center"), h.string(text(h, v)), Arguments{{width}, {}});
     }},
    {"count", "", [](Heap& h, const Value& v, Args) { return Value(static_cast<int64_t>(length(h, v))); }},
    {"d", "default_value boolean", otherwise},
    {"default", "default_value boolean", otherwise},
    {"e", "", escape},
    {"escape", "", escape},
    {"float", "default", to_real},
    {"forceescape", "", escape},
    {"format", "...", format},
    {"indent", "width first blank", indent},
    {"int", "default base", to_integer},
    {"length", "", [](Heap& h, const Value& v, Args) { return Value(static_cast<int64_t>(length(h, v))); }},
    {"lower", "", [](Heap& h, const Value& v, Args) { return h.string(lower(text(h, v))); }},
    {"replace", "old! new! count", replace},
    {"round", "precision method", rounded},
    {"safe", "", [](Heap&, const Value& v, Args) { return v; }},
    {"string", "", [](Heap& h, const Value& v, Args) { return h.string(text(h, v)); }},
    {"title", "", title},
    {"tojson", "ensure_ascii indent separators sort_keys", to_json},
    {"trim", "chars", trim},
    {"upper", "", [](Heap& h, const Value& v, Args) { return h.string(upper(text(h, v))); }},
    {"wordcount", "", words},
});

}  // namespace

const Routine* find_filter(std::string_view name) {
  const auto* it =
      std::find_if(kFilters.begin(), kFilters.end(), [&](const Routine& routine) { return routine.name == name; });
  return it == kFilters.end() ? find_list_filter(name) : it;
}

}  // namespace hone::jinja
