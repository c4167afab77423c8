#include "core/net/http_client.h"

#include "core/base/check.h"
#include "core/net/http_channel.h"

namespace hone {

Url parse_url(std::string_view text) {
  Url out;
  std::string_view rest = text;
  out.tls = rest.starts_with("https://");
  HONE_CHECK(out.tls || rest.starts_with("http://"), "'", text,
             "' is not a URL; it must begin with http:// or https://");
  rest.remove_prefix(out.tls ? 8 : 7);
  for (const char c : text)
    HONE_CHECK(static_cast<unsigned char>(c) > ' ' && static_cast<unsigned char>(c) < 0x7f, "'", text,
               "': a URL has printable ASCII characters only");
  rest = rest.substr(0, rest.find('#'));
  const size_t path = rest.find_first_of("/?");
  out.target = path == std::string_view::npos ? "/"
               : rest[path] == '?'            ? "/" + std::string(rest.substr(path))
                                              : std::string(rest.substr(path));
  std::string_view authority = rest.substr(0, path);
  HONE_CHECK(authority.find('@') == std::string_view::npos, "a URL must not contain a user name; use a key file");
  const size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
  HONE_CHECK(bracket != std::string_view::npos, "'", text, "': the closing ] is missing");
  const size_t colon = authority.find(':', bracket);
  out.port = colon == std::string_view::npos ? (out.tls ? "443" : "80") : std::string(authority.substr(colon + 1));
  out.host = std::string(bracket > 0 ? authority.substr(1, bracket - 1) : authority.substr(0, colon));
  HONE_CHECK(!out.host.empty(), "'", text, "' has no host");
  HONE_CHECK(!out.port.empty() && out.port.size() <= 5 &&
                 out.port.find_first_not_of("0123456789") == std::string::npos && std::stoi(out.port) <= 65535,
             "'", text, "': the port is '", out.port, "'; it must be in [0, 65535]");
  return out;
}

HttpResponse http_post(const Url& url, HttpRequest request) {
  request.headers.emplace_back("Connection", "close");
  return HttpChannel(url).post(url.target, request);
}

HttpResponse http_get(const Url& url, HttpRequest request) {
  request.is_get = true;
  return http_post(url, std::move(request));
}

}  // namespace hone
