#pragma once
// What a server turns down before it reads a body: a request without a key, from a page of another origin, by a name
// that is not this machine's, with a body that is not JSON, at no path it has, or with another method.
//
// Without a key any page that a browser of this machine shows could ask: it may send a POST of text/plain to 127.0.0.1
// without a question, and with a name of its own that it lets point to 127.0.0.1 (DNS rebinding) it may read the
// answers, too. Content-Type, Origin and Host tell these apart.
#include <optional>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/net/bearer_keys.h"
#include "core/net/http_transaction.h"

namespace hone {

struct HttpRoute {
  const char* method = "";
  bool open = false;  // to everybody
};

// Whom a server answers besides its own page; "*" in a list stands for all.
struct ServeAccess {
  std::vector<std::string> allowed_origins = {};  // "https://host:port" as browsers send it
  std::vector<std::string> allowed_hosts =
      {};  // names without a port, besides localhost and addresses 127.x.x.x and ::1
  void fields(Fields& f);
};

// 127.x.x.x, ::1 or localhost, with or without a port.
bool is_loopback(std::string_view host);

class ServeGate {
 public:
  // host: the address that the server listens at. keys: those of which one is needed, if any. Host is checked where
  // there are none and only this machine reaches the server: elsewhere its names are not known, unless allowed_hosts
  // says them.
  ServeGate(ServeAccess access, const std::string& host, std::optional<ApiKeys> keys);
  // route: the path's, nullptr where there is none. An answer where the request is turned down, or is a browser's
  // question what it may ask (OPTIONS).
  std::optional<HttpServerResponse> refusal(const HttpRequestInfo& head, const HttpRoute* route) const;
  // That let a page of an allowed origin read the answer.
  HttpHeaders headers_for(const HttpRequestInfo& head) const;

 private:
  bool allows_host(std::string_view host) const;
  bool allows_origin(const HttpRequestInfo& head) const;
  bool is_foreign(const HttpRequestInfo& head) const;

  const ServeAccess access_;
  const bool checks_host_;
  const std::optional<ApiKeys> keys_;
};

}  // namespace hone
