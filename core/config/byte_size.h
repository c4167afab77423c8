#pragma once
// Sizes of memory as people write them: "8 GB", "12 GiB", "500 MB", or a number of bytes.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hone {

// Reads a size: a number above 0, then B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024), in
// upper or lower case; without a unit, whole bytes. nullopt for any other text and for 2^62 bytes or more.
std::optional<int64_t> read_byte_size(std::string_view text);
// A size for people: "7.45 GB", "336.5 MB", "512 bytes".
std::string byte_size_text(int64_t bytes);

}  // namespace hone
