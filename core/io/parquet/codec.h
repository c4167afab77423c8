#pragma once
// Compression of Parquet pages. libsnappy, liblz4 stay behind this header.
#include <string>
#include <string_view>

#include "core/io/parquet/metadata.h"

namespace hone::parquet {

// Unpacks a page of `size` bytes. Throws an Error unless it has just that many. A false size allocates at most a
// multiple of the packed bytes.
std::string unpack_page(Codec codec, std::string_view packed, size_t size);

}  // namespace hone::parquet
