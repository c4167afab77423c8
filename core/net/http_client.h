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
  std::string port;    // 80 or 443 by default
  std::string target;  // path and query; at least "/"
};
// Parses an absolute http or https URL. Throws if it has another scheme, a user name, a space and so on.
Url parse_url(std::string_view text);

struct HttpRequest {
  bool is_get = false;         // GET, without a body; else POST
  std::string_view body = {};  // not copied
  std::string content_type = "application/json";
  HttpHeaders headers = {};                // in addition to the usual ones
  double timeout = 30;                     // seconds for connection, TLS, request and response together
  uint64_t max_body = uint64_t{64} << 20;  // of the response
};

struct HttpResponse {
  int status = 0;
  std::string body;
  HttpHeaders headers;
  std::string_view header(std::string_view name) const { return find_header(headers, name); }
};

// Sends one POST on a new connection, under the rules of HttpChannel::post(), and waits for the response. Any thread.
// Does not follow redirections.
HttpResponse http_post(const Url& url, HttpRequest request);
// The same with GET.
HttpResponse http_get(const Url& url, HttpRequest request);

}  // namespace hone
