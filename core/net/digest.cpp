#include "core/net/digest.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include "core/base/check.h"

namespace hone {

Digest sha256(std::string_view bytes) {
  Digest out{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), out.data());
  return out;
}

constexpr size_t kMaxBytes = size_t{1} << 30;  // OpenSSL's lengths are int

std::string base64(std::span<const unsigned char> bytes) {
  HONE_CHECK(bytes.size() <= kMaxBytes, "base64 of ", bytes.size(), " bytes; the maximum is ", kMaxBytes);
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // + 1: EVP_EncodeBlock writes a final zero
  out.resize(static_cast<size_t>(
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes.data(), static_cast<int>(bytes.size()))));
  return out;
}

std::string from_base64(std::string_view text, std::string_view what) {
  HONE_CHECK(text.size() <= kMaxBytes, what, ": ", text.size(), " characters of base64; the maximum is ", kMaxBytes);
  std::string out(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  HONE_CHECK(size == static_cast<int>(out.size()) && text.size() % 4 == 0 &&
                 text.substr(0, text.size() - padding).find('=') == text.npos,
             what,
             ": not valid base64");  // OpenSSL accepts = anywhere as zeros
  out.resize(out.size() - padding);
  return out;
}

}  // namespace hone
