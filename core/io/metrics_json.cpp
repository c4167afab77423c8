#include "core/io/metrics_json.h"

#include <cmath>

namespace hone {

Json metrics_json(const Metrics& metrics) {
  Json out = JsonObject{};
  for (const auto& [name, value] : metrics)
    if (std::isfinite(value)) out.set(name, value);
  return out;
}

Metrics metrics_of(const Json& json) {
  Metrics out;
  for (const auto& [name, value] : json.as_object("metrics")) out[name] = value.as_double(name);
  return out;
}

}  // namespace hone
