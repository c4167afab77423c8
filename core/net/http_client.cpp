#include "core/net/http_client.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "core/check.h"

namespace hone {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::use_awaitable;

std::string name_of(const Url& url) {
  const bool v6 = url.host.find(':') != std::string::npos;
  return concat(url.tls ? "https://" : "http://", v6 ? "[" : "", url.host, v6 ? "]" : "", ":", url.port, url.target);
}

http::request<http::string_body> message_of(const Url& url, const HttpRequest& request) {
  http::request<http::string_body> out(http::verb::post, url.target, 11);
  const std::string host = url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
  out.set(http::field::host, url.port == (url.tls ? "443" : "80") ? host : host + ":" + url.port);
  out.set(http::field::user_agent, "hone");
  out.set(http::field::content_type, request.content_type);
  out.set(http::field::connection, "close");
  for (const auto& [name, value] : request.headers) out.set(name, value);
  out.body() = request.body;
  out.prepare_payload();
  return out;
}

template <class Stream>
asio::awaitable<HttpResponse> exchange(Stream& stream, const Url& url, const HttpRequest& request) {
  const http::request<http::string_body> message = message_of(url, request);
  co_await http::async_write(stream, message, use_awaitable);
  http::response_parser<http::string_body> parser;
  parser.body_limit(request.max_body);
  beast::flat_buffer buffer;
  co_await http::async_read_header(stream, buffer, parser, use_awaitable);  // by itself: Beast 1.74 otherwise reads past the limit of a stated length
  co_await http::async_read(stream, buffer, parser, use_awaitable);
  HttpResponse out{.status = static_cast<int>(parser.get().result_int()), .body = {}, .location = {}};
  out.location = std::string(parser.get()[http::field::location]);
  out.body = std::move(parser.get().body());
  co_return out;
}

asio::awaitable<HttpResponse> connect_and_exchange(asio::io_context& io, const Url& url, const HttpRequest& request) {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(request.timeout));
  asio::ip::tcp::resolver resolver(io);
  const auto addresses = co_await resolver.async_resolve(url.host, url.port, use_awaitable);
  if (!url.tls) {
    beast::tcp_stream stream(io);
    stream.expires_at(deadline);
    co_await stream.async_connect(addresses, use_awaitable);
    co_return co_await exchange(stream, url, request);
  }
  asio::ssl::context tls(asio::ssl::context::tls_client);
  tls.set_default_verify_paths();
  tls.set_verify_mode(asio::ssl::verify_peer);
  tls.set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
  beast::ssl_stream<beast::tcp_stream> stream(io, tls);
  stream.set_verify_callback(asio::ssl::host_name_verification(url.host));
  boost::system::error_code not_an_address;
  asio::ip::make_address(url.host, not_an_address);
  if (not_an_address) SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str());
  beast::get_lowest_layer(stream).expires_at(deadline);
  co_await beast::get_lowest_layer(stream).async_connect(addresses, use_awaitable);
  co_await stream.async_handshake(asio::ssl::stream_base::client, use_awaitable);
  co_return co_await exchange(stream, url, request);
}

}  // namespace

Url parse_url(std::string_view text) {
  Url out;
  std::string_view rest = text;
  out.tls = rest.starts_with("https://");
  HONE_CHECK(out.tls || rest.starts_with("http://"), "'", text, "' is no URL that begins with http:// or https://");
  rest.remove_prefix(out.tls ? 8 : 7);
  for (const char c : text)
    HONE_CHECK(static_cast<unsigned char>(c) > ' ' && static_cast<unsigned char>(c) < 0x7f, "'", text,
               "': a URL has printable ASCII characters alone");
  rest = rest.substr(0, rest.find('#'));
  const size_t path = rest.find_first_of("/?");
  out.target = path == std::string_view::npos ? "/" : rest[path] == '?' ? "/" + std::string(rest.substr(path)) : std::string(rest.substr(path));
  std::string_view place = rest.substr(0, path);
  HONE_CHECK(place.find('@') == std::string_view::npos, "a URL with a user name is not taken; a header may say who asks");
  const size_t bracket = place.starts_with('[') ? place.find(']') : 0;
  HONE_CHECK(bracket != std::string_view::npos, "'", text, "': the bracket is not closed");
  const size_t colon = place.find(':', bracket);
  out.port = colon == std::string_view::npos ? (out.tls ? "443" : "80") : std::string(place.substr(colon + 1));
  out.host = std::string(bracket > 0 ? place.substr(1, bracket - 1) : place.substr(0, colon));
  HONE_CHECK(!out.host.empty(), "'", text, "' names no host");
  HONE_CHECK(
      !out.port.empty() && out.port.size() <= 5 && out.port.find_first_not_of("0123456789") == std::string::npos && std::stoi(out.port) <= 65535, "'",
      text, "': the port is '", out.port, "'");
  return out;
}

HttpResponse http_post(const Url& url, const HttpRequest& request) {
  asio::io_context io(1);
  std::optional<HttpResponse> response;
  std::exception_ptr error;
  asio::co_spawn(io, connect_and_exchange(io, url, request), [&](std::exception_ptr problem, HttpResponse got) {
    error = problem;
    response = std::move(got);
  });
  io.run();
  try {
    if (error) std::rethrow_exception(error);
  } catch (const boost::system::system_error& problem) {
    fail(name_of(url), ": ",
         problem.code() == beast::error::timeout ? concat("no answer within ", request.timeout, " seconds") : problem.code().message());
  }
  return std::move(*response);
}

}  // namespace hone
