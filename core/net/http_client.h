#pragma once
// HTTP requests to a server, http or https. Boost.Beast and OpenSSL stay in http_client.cpp.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  std::string_view body = {};
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};  // further ones
  double timeout = 30;                                            // seconds for connection, TLS, request and response together
  uint64_t max_body = uint64_t{64} << 20;                         // of the response
};

struct HttpResponse {
  int status = 0;
  std::string body;
  std::string location;  // where a redirection points; it is not followed
};

// One POST on a connection of its own; any thread; blocks. A server's certificate has to be valid for the host by the system's roots (or those that
// SSL_CERT_FILE and SSL_CERT_DIR name). Whatever keeps a whole response from coming is an Error that names the URL.
HttpResponse http_post(const Url& url, const HttpRequest& request);

}  // namespace hone
