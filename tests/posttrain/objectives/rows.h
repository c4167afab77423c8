#pragma once
// Numbers per token, [sequence][token], as `hone objective` reads them.
#include <vector>

#include "core/io/json.h"

namespace hone::test {

using Rows = std::vector<std::vector<double>>;

inline Json nested(const Rows& rows) {
  JsonArray out;
  for (const std::vector<double>& row : rows) out.push_back(Json::array(row));
  return out;
}

}  // namespace hone::test
