#pragma once
// The largest key tile of the attention bodies. They read keys in tiles aligned to position 0 of a sequence and skip
// tiles that no query of the call sees. So no body reads a key before the multiple of this number that is at or below
// the first key that a query sees; a KV block that lies before may be given back.
#include <cstdint>

namespace hone {

inline constexpr int64_t max_key_tile = 128;

}  // namespace hone
