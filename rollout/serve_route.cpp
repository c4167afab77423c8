#include "rollout/serve_route.h"

#include "rollout/serve_request.h"

namespace hone {

std::optional<HttpReply> refusal(const HttpHead& head, const std::optional<BearerKeys>& keys, const ServeRoute* route) {
  const auto refuse = [](int status, const std::string& message, const char* code, HttpHeaders headers) {
    return HttpReply{.status = status, .body = error_json(status, message, {}, code).dump(), .headers = std::move(headers)};
  };
  if (keys && !(route && route->open) && !keys->admit(head.header("authorization")))
    return refuse(401, "a key is needed: Authorization: Bearer KEY, one of the server's", "invalid_api_key", {{"WWW-Authenticate", "Bearer"}});
  if (!route) return refuse(404, concat("there is no ", head.path.substr(0, 200), " here"), "not_found", {});
  if (head.method != route->method)
    return refuse(405, concat(head.path, " takes ", route->method, ", not ", head.method), "method_not_allowed", {{"Allow", route->method}});
  return std::nullopt;
}

}  // namespace hone
