#include "core/net/http_error.h"

#include <algorithm>

namespace hone {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

bool holds(const std::vector<std::string>& list, std::string_view value) {
  return std::ranges::any_of(list, [&](const std::string& one) { return one == "*" || lower(one) == value; });
}

// "localhost:8000" -> "localhost", "[::1]:8000" and "::1" -> "::1"; "" if the name is followed by something other than
// a port.
std::string host_name(std::string_view host) {
  if (std::ranges::count(host, ':') > 1 && !host.starts_with('['))
    return lower(host);  // an IPv6 address without brackets
  const bool bracketed = host.starts_with('[');
  const size_t end = bracketed ? host.find(']') : host.find(':');
  std::string_view port = end == std::string_view::npos ? "" : host.substr(end + (bracketed ? 1 : 0));
  if (!port.empty() && (port.front() != ':' || port.find_first_not_of("0123456789", 1) != std::string_view::npos))
    return "";
  return lower(bracketed ? host.substr(1, end == std::string_view::npos ? end : end - 1) : host.substr(0, end));
}

bool is_ipv4(std::string_view host) {
  int parts = 1, digits = 0;
  for (const char c : host) {
    if (c == '.') {
      if (digits == 0) return false;
      ++parts;
      digits = 0;
    } else if (c < '0' || c > '9' || ++digits > 3) {
      return false;
    }
  }
  return parts == 4 && digits > 0;
}

// The media type of a Content-Type, without its parameters.
std::string media_type(std::string_view header) {
  std::string out = lower(header.substr(0, header.find(';')));
  out.erase(0, std::min(out.find_first_not_of(" \t"), out.size()));
  out.erase(out.find_last_not_of(" \t") + 1);
  return out;
}

HttpServerResponse reject(int status, const std::string& message, const char* code, HttpHeaders headers = {}) {
  return {.status = status, .body = error_json(status, message, {}, code).dump(), .headers = std::move(headers)};
}

}  // namespace

Json error_json(int status, const std::string& message, const std::string& param, const std::string& code) {
  const char* type = status == 401   ? "authentication_error"
                     : status == 429 ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  return JsonObject{{"error", JsonObject{{"message", message},
                                         {"type", type},
                                         {"param", param.empty() ? Json() : Json(param)},
                                         {"code", code.empty() ? Json() : Json(code)}}}};
}

void ServeAccess::fields(Fields& f) {
  f("allowed_origins", allowed_origins,
    "origins (https://host:port) whose pages may send requests from a browser, besides the server's own; * = all");
  f("allowed_hosts", allowed_hosts,
    "host names that requests may use for the server, besides localhost and its addresses; * = all");
}

bool is_loopback(std::string_view host) {
  const std::string name = host_name(host);
  return name == "localhost" || name == "::1" || (is_ipv4(name) && name.starts_with("127."));
}

ServeGate::ServeGate(ServeAccess access, const std::string& host, std::optional<ApiKeys> keys)
    : access_(std::move(access)),
      checks_host_(!keys && (is_loopback(host) || !access_.allowed_hosts.empty())),
      keys_(std::move(keys)) {}

// HTTP/1.0 clients may leave the header out; browsers never do.
bool ServeGate::allows_host(std::string_view host) const {
  return !checks_host_ || host.empty() || is_loopback(host) || holds(access_.allowed_hosts, host_name(host));
}

// True for a page of another origin. Programs send no Origin.
bool ServeGate::is_foreign(const HttpRequestInfo& head) const {
  const std::string origin = lower(head.header("origin"));
  const size_t scheme = origin.find("://");
  return !origin.empty() && (scheme == std::string::npos || origin.substr(scheme + 3) != lower(head.header("host")));
}

bool ServeGate::allows_origin(const HttpRequestInfo& head) const {
  return !is_foreign(head) || holds(access_.allowed_origins, lower(head.header("origin")));
}

HttpHeaders ServeGate::headers_for(const HttpRequestInfo& head) const {
  if (!is_foreign(head) || !allows_origin(head)) return {};
  return {{"Access-Control-Allow-Origin", std::string(head.header("origin"))}, {"Vary", "Origin"}};
}

std::optional<HttpServerResponse> ServeGate::refusal(const HttpRequestInfo& head, const HttpRoute* route) const {
  if (!allows_host(head.header("host")))
    return reject(403,
                  concat("this server is not called '", std::string(head.header("host")).substr(0, 200),
                         "'; --allowed-hosts lets it be, or a key (--api-key-file)"),
                  "host_not_allowed");
  if (!allows_origin(head))
    return reject(403,
                  concat("pages of ", std::string(head.header("origin")).substr(0, 200),
                         " may not ask here; --allowed-origins lets them"),
                  "origin_not_allowed");
  if (head.method == "OPTIONS" && is_foreign(head) && route)  // a preflight request has no key
    return HttpServerResponse{.status = 204,
                              .headers = {{"Access-Control-Allow-Methods", route->method},
                                          {"Access-Control-Allow-Headers", "authorization, content-type"},
                                          {"Access-Control-Max-Age", "600"}}};
  if (keys_ && !(route && route->open) && !keys_->accepts(head.header("authorization")))
    return reject(401, "a key is needed: Authorization: Bearer KEY, one of the server's", "invalid_api_key",
                  {{"WWW-Authenticate", "Bearer"}});
  if (!route) return reject(404, concat("there is no ", head.path.substr(0, 200), " here"), "not_found");
  if (head.method != route->method)
    return reject(405, concat(head.path, " takes ", route->method, ", not ", head.method), "method_not_allowed",
                  {{"Allow", route->method}});
  if (head.method == "POST" && media_type(head.header("content-type")) != "application/json")
    return reject(415,
                  concat(head.path, " takes application/json (Content-Type), not '",
                         std::string(head.header("content-type")).substr(0, 200), "'"),
                  "unsupported_media_type");
  return std::nullopt;
}

}  // namespace hone
