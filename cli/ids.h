#pragma once
// Token ids in the JSON input of commands.
#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json.h"

namespace hone {

// Reads the ids of a JSON array. Throws if one is not in [0, vocab_size).
inline std::vector<int32_t> parse_ids(const Json& ids, int64_t vocab_size, const std::string& where) {
  std::vector<int32_t> out;
  for (const Json& id : ids.as_array(where)) {
    const int64_t value = id.as_int(where);
    HONE_CHECK(value >= 0 && value < vocab_size, where, ": id ", value,
               " is not in the vocabulary; ids must be in [0, ", vocab_size, ")");
    out.push_back(static_cast<int32_t>(value));
  }
  return out;
}

}  // namespace hone
