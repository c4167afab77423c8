// The tojson filter: json.dumps of values.
#include <algorithm>

#include "core/text/jinja/text.h"
#include "core/text/jinja/value.h"

namespace hone::jinja {

static std::string key_text(Heap& heap, const Value& key) {
  if (key.is(Kind::string)) return key.string();
  if (key.is(Kind::boolean)) return key.integer() ? "true" : "false";
  if (key.is(Kind::none)) return "null";
  if (key.is_number()) return text(heap, key);
  heap.fail("tojson: a key may not be a '", type_name(key), "'");
}

static std::string quoted(std::string_view text, bool ascii) {
  std::string out = json_quoted(text);
  if (!ascii) return out;
  std::string plain;
  for (const std::string_view one : chars(out)) plain += one.size() == 1 ? std::string(one) : json_escaped(one);
  return plain;
}

// Writes items between brackets; write(i) writes one item.
template <class Write>
static void bracketed(Heap& heap, std::string& out, std::string_view brackets, size_t size, const JsonStyle& style,
                      int64_t level, Write write) {
  const auto line = [&](int64_t at) {
    if (style.indent < 0) return;
    heap.append(out, "\n");
    for (int64_t i = 0; i < style.indent * at; ++i) heap.append(out, " ");
  };
  heap.append(out, brackets.substr(0, 1));
  for (size_t i = 0; i < size; ++i) {
    if (i > 0) heap.append(out, style.item);
    line(level + 1);
    write(i);
  }
  if (size > 0) line(level);
  heap.append(out, brackets.substr(1));
}

void append_json(Heap& heap, std::string& out, const Value& v, const JsonStyle& style, int64_t level) {
  const Heap::Depth depth(heap);
  switch (v.kind()) {
    case Kind::none:
      return heap.append(out, "null");
    case Kind::boolean:
      return heap.append(out, v.integer() ? "true" : "false");
    case Kind::integer:
      return heap.append(out, std::to_string(v.integer()));
    case Kind::real: {
      const std::string digits = python_number(v.number());
      return heap.append(out, digits == "nan"    ? "NaN"
                              : digits == "inf"  ? "Infinity"
                              : digits == "-inf" ? "-Infinity"
                                                 : digits);
    }
    case Kind::string:
      return heap.append(out, quoted(v.string(), style.ascii));
    case Kind::list:
    case Kind::tuple:
      return bracketed(heap, out, "[]", v.list().size(), style, level,
                       [&](size_t i) { append_json(heap, out, v.list()[i], style, level + 1); });
    case Kind::dict: {
      Dict entries = v.dict();
      heap.spend(entries.size());
      if (style.sort_keys) {
        std::stable_sort(entries.begin(), entries.end(),
                         [&](const auto& a, const auto& b) { return less(heap, a.first, b.first); });
      }
      return bracketed(heap, out, "{}", entries.size(), style, level, [&](size_t i) {
        heap.append(out, quoted(key_text(heap, entries[i].first), style.ascii));
        heap.append(out, style.key);
        append_json(heap, out, entries[i].second, style, level + 1);
      });
    }
    default:
      heap.fail("tojson: '", v.is(Kind::undefined) ? v.missing() : type_name(v), "' is ",
                v.is(Kind::undefined) ? "undefined" : "no JSON");
  }
}

}  // namespace hone::jinja
