#pragma once
#include "core/io/json.h"
#include "core/io/metrics.h"

namespace hone {

// An object; numbers that JSON has no word for are left out.
Json metrics_json(const Metrics& metrics);
Metrics metrics_of(const Json& json);

}  // namespace hone
