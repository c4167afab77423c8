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

constexpr size_t most_bytes = size_t{1} << 30;  // the library counts in int

std::string base64(std::span<const unsigned char> bytes) {
  HONE_CHECK(bytes.size() <= most_bytes, "base64 of ", bytes.size(), " bytes, at most ", most_bytes);
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // and the zero that EVP_EncodeBlock ends it with
  out.resize(static_cast<size_t>(
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes.data(), static_cast<int>(bytes.size()))));
  return out;
}

std::string from_base64(std::string_view text, std::string_view what) {
  HONE_CHECK(text.size() <= most_bytes, what, ": ", text.size(), " characters of base64, at most ", most_bytes);
  std::string out(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  HONE_CHECK(size == static_cast<int>(out.size()) && text.size() % 4 == 0 &&
                 text.substr(0, text.size() - padding).find('=') == text.npos,
             what,
             ": this is no base64");  // OpenSSL takes a = anywhere for zeros
  out.resize(out.size() - padding);
  return out;
}

}  // namespace hone
