#include "model/io/gguf_architecture.h"

#include <algorithm>

namespace hone {
namespace {

// Replaces the "*" of `to` by what matches the "*" of `from` in `name`, which must be a number. Empty: no match.
std::string renamed(std::string_view name, std::string_view from, std::string_view to) {
  const size_t star = from.find('*');
  if (star == std::string_view::npos) return name == from ? std::string(to) : std::string();
  const std::string_view front = from.substr(0, star), back = from.substr(star + 1);
  if (name.size() <= front.size() + back.size() || !name.starts_with(front) || !name.ends_with(back)) return {};
  const std::string_view layer = name.substr(front.size(), name.size() - front.size() - back.size());
  if (!std::ranges::all_of(layer, [](char c) { return c >= '0' && c <= '9'; })) return {};
  const size_t place = to.find('*');
  return concat(to.substr(0, place), layer, to.substr(place + 1));
}

std::string converted(const GgufArchitecture& architecture, std::string_view name, bool from_gguf) {
  const size_t dot = name.rfind('.');
  const std::string_view ending = dot == std::string_view::npos ? std::string_view() : name.substr(dot);
  if (ending != ".weight" && ending != ".bias") return {};
  for (const GgufTensorName& pair : architecture.names) {
    const std::string stem = from_gguf ? renamed(name.substr(0, dot), pair.gguf, pair.hugging_face)
                                       : renamed(name.substr(0, dot), pair.hugging_face, pair.gguf);
    if (!stem.empty()) return concat(stem, ending);
  }
  return {};
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

std::string hugging_face_name(const GgufArchitecture& architecture, std::string_view gguf) {
  return converted(architecture, gguf, true);
}

std::string gguf_name(const GgufArchitecture& architecture, std::string_view hugging_face) {
  return converted(architecture, hugging_face, false);
}

}  // namespace hone
