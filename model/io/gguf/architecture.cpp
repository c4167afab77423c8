#include "model/io/gguf/architecture.h"

#include <algorithm>

namespace hone {
namespace {

// The numbers of a name.
struct NameNumbers {
  std::string_view layer, expert;
};

// The number that `name` begins with, and the rest of the name.
std::string_view number_at(std::string_view name) {
  constexpr size_t most_digits = 4;
  size_t digits = 0;
  while (digits < name.size() && name[digits] >= '0' && name[digits] <= '9') ++digits;
  return digits <= most_digits ? name.substr(0, digits) : std::string_view();
}

// Whether the name has the pattern's form; numbers: what stands for "*" and "#".
bool matches(std::string_view name, std::string_view pattern, NameNumbers& numbers) {
  while (!pattern.empty()) {
    const char c = pattern.front();
    if (c == '*' || c == '#') {
      const std::string_view number = number_at(name);
      if (number.empty()) return false;
      (c == '*' ? numbers.layer : numbers.expert) = number;
      name.remove_prefix(number.size());
    } else {
      if (name.empty() || name.front() != c) return false;
      name.remove_prefix(1);
    }
    pattern.remove_prefix(1);
  }
  return name.empty();
}

std::string with_layer(std::string_view pattern, std::string_view layer) {
  std::string out(pattern);
  if (const size_t star = out.find('*'); star != std::string::npos) out.replace(star, 1, layer);
  return out;
}

std::optional<GgufTranslation> converted(const GgufArchitecture& architecture, std::string_view name, bool from_gguf) {
  const size_t dot = name.rfind('.');
  const std::string_view ending = dot == std::string_view::npos ? std::string_view() : name.substr(dot);
  const bool usual = ending == ".weight" || ending == ".bias";
  for (const GgufTensorName& entry : architecture.names) {
    if (!entry.complete && !usual) continue;
    const std::string_view from = from_gguf ? entry.gguf : entry.hugging_face,
                           to = from_gguf ? entry.hugging_face : entry.gguf;
    NameNumbers numbers;
    if (!matches(entry.complete ? name : name.substr(0, dot), from, numbers)) continue;
    GgufTranslation out{.name = with_layer(to, numbers.layer), .entry = &entry};
    if (!entry.complete) out.name += ending;
    if (!numbers.expert.empty()) out.expert = std::stoll(std::string(numbers.expert));
    return out;
  }
  return std::nullopt;
}

}  // namespace

int64_t GgufKeys::count(std::string_view key) const {
  const Json* value = file_.find(full(key));
  const std::string what = concat(file_.source(), ": key '", full(key), "'");
  HONE_CHECK(value, file_.source(), ": key '", full(key), "' is missing");
  if (value->is_array()) {
    const JsonArray& all = value->as_array();
    HONE_CHECK(!all.empty() && std::ranges::all_of(all, [&](const Json& one) { return one == all.front(); }), what,
               ": layers of different sizes are not supported");
    value = &all.front();
  }
  const int64_t out = value->as_int(what);
  HONE_CHECK(out >= 1 && out <= INT32_MAX, what, " is ", out, "; it must be 1 to ", INT32_MAX);
  return out;
}

Registry<GgufArchitecture>& gguf_architectures() {
  static Registry<GgufArchitecture> registry("GGUF architecture");
  return registry;
}

std::optional<GgufTranslation> hugging_face_name(const GgufArchitecture& architecture, std::string_view gguf) {
  return converted(architecture, gguf, true);
}

std::optional<GgufTranslation> gguf_name(const GgufArchitecture& architecture, std::string_view hugging_face) {
  return converted(architecture, hugging_face, false);
}

}  // namespace hone
