#pragma once
// SHA-256 (FIPS 180-4) and base64 (RFC 4648, section 4).
#include <array>
#include <span>
#include <string>
#include <string_view>

namespace hone {

using Digest = std::array<unsigned char, 32>;

Digest sha256(std::string_view bytes);
std::string base64(std::span<const unsigned char> bytes);
// Decodes base64. Throws an Error that names `what` if text is not base64.
std::string from_base64(std::string_view text, std::string_view what);

}  // namespace hone
