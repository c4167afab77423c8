#pragma once
// HttpHeaders: the headers of a request or a response, in order. Names of received headers are in lower case.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hone {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The value of the first header of that name; "" if there is none.
inline std::string_view find_header(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

// The headers of a received Beast message.
template <class Message>
HttpHeaders headers_of(const Message& message) {
  HttpHeaders out;
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    out.emplace_back(std::move(name), std::string(field.value()));
  }
  return out;
}

}  // namespace hone
