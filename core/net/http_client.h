#pragma once
// HTTP requests to a server, http or https.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/net/http_headers.h"

namespace hone {

struct Url {
  bool tls = false;    // https
  std::string host;    // an IPv6 address without its brackets
  std::string port;    // 80 or 443 unless it is named
  std::string target;  // path and query, "/" at least
};
// Of an absolute http or https URL; an Error says what is wrong with it (another scheme, a user name, a space, ...).
Url parse_url(std::string_view text);

struct HttpRequest {
  std::string_view body = {};  // sent from where it is
  std::string content_type = "application/json";
  HttpHeaders headers = {};                // further ones
  double timeout = 30;                     // seconds for connection, TLS, request and response together
  uint64_t max_body = uint64_t{64} << 20;  // of the response
};

struct HttpResponse {
  int status = 0;
  std::string body;
  HttpHeaders headers;
  std::string_view header(std::string_view name) const { return find_header(headers, name); }
};

// One POST on a connection of its own, as HttpChannel does it (core/net/http_channel.h); any thread; blocks. A
// redirection is not followed.
HttpResponse http_post(const Url& url, HttpRequest request);

}  // namespace hone
