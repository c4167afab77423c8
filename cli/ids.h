#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json.h"

namespace hone {

// Ids of a JSON array, each checked to be in [0, vocab_size).
inline std::vector<int32_t> parse_ids(const Json& ids, int64_t vocab_size, const std::string& where) {
  std::vector<int32_t> out;
  for (const Json& id : ids.as_array(where)) {
    const int64_t value = id.as_int(where);
    HONE_CHECK(value >= 0 && value < vocab_size, where, ": id ", value, " is not in the model's vocabulary of ",
               vocab_size);
    out.push_back(static_cast<int32_t>(value));
  }
  return out;
}

}  // namespace hone
