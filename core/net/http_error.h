#pragma once
// Errors of our HTTP servers (serve/, rollout/remote/): their JSON form, and the requests that a server rejects before
// it reads a body. Those are requests without a key, from a page of another origin, for a host name that is not this
// machine's, with a body that is not JSON, for an unknown path, and with the wrong method.
//
// Without a key, any page in a browser of this machine could call the server. A page may send a POST of text/plain to
// 127.0.0.1 without a preflight request. With a host name of its own that resolves to 127.0.0.1 (DNS rebinding) it may
// read the responses, too. Content-Type, Origin and Host expose both.
#include <optional>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/io/json.h"
#include "core/net/bearer_keys.h"
#include "core/net/http_transaction.h"

namespace hone {

// An error response, in the form that OpenAI's clients read.
class HttpError : public Error {
 public:
  HttpError(int status_code, const std::string& message, std::string field = {}, std::string code_name = {})
      : Error(message), status(status_code), param(std::move(field)), code(std::move(code_name)) {}
  int status;         // HTTP status code
  std::string param;  // the wrong member of the request, or ""
  std::string code;   // "model_not_found", ..., or ""
};
// {"error": {message, type, param, code}}
Json error_json(int status, const std::string& message, const std::string& param = {}, const std::string& code = {});

struct HttpRoute {
  const char* method = "";
  bool open = false;  // no key is needed
};

// Origins and hosts that a server accepts besides its own; "*" in a list accepts all.
struct ServeAccess {
  std::vector<std::string> allowed_origins = {};  // "https://host:port" as browsers send it
  std::vector<std::string> allowed_hosts =
      {};  // names without a port, besides localhost and addresses 127.x.x.x and ::1
  void fields(Fields& f);
};

// True for 127.x.x.x, ::1 and localhost, with or without a port.
bool is_loopback(std::string_view host);

class ServeGate {
 public:
  // host: the address that the server listens at. keys: a request needs one of them; nullopt: none is needed. The Host
  // header is checked if there are no keys and either only this machine reaches the server or allowed_hosts is given.
  // Otherwise the server does not know its own names.
  ServeGate(ServeAccess access, const std::string& host, std::optional<ApiKeys> keys);
  // route: of the path; nullptr for an unknown path. Returns a response if the request is rejected or is a browser's
  // preflight request (OPTIONS).
  std::optional<HttpServerResponse> refusal(const HttpRequestInfo& head, const HttpRoute* route) const;
  // Response headers that let a page of an allowed origin read the response.
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
