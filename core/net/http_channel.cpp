#include "core/net/http_channel.h"

#include <poll.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "core/base/check.h"

namespace hone {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::use_awaitable;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

struct HttpChannel::Impl {
  explicit Impl(Url base) : url(std::move(base)) {}

  HttpResponse post(const std::string& target, const HttpRequest& request);
  asio::awaitable<HttpResponse> exchange(const std::string& target, const HttpRequest& request,
                                         Clock::time_point deadline);
  asio::awaitable<void> connect(Clock::time_point deadline);
  template <class Stream>
  asio::awaitable<HttpResponse> exchange_over(Stream& stream, const std::string& target, const HttpRequest& request);

  std::string host() const { return url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]"; }
  // For messages: without the query, which may hold a key.
  std::string name_of(const std::string& target) const {
    return concat(url.tls ? "https://" : "http://", host(), ":", url.port, target.substr(0, target.find('?')));
  }
  void drop() {
    tls.reset();
    socket.reset();
  }

  const Url url;
  std::atomic<bool> aborted = false;
  asio::io_context io{1};  // runs on the posting thread during post()
  tcp::resolver resolver{io};
  std::optional<asio::ssl::context> roots;
  std::optional<beast::tcp_stream> socket;  // set while connected
  std::optional<beast::ssl_stream<beast::tcp_stream&>> tls;
  beast::flat_buffer buffer;  // received bytes after the last response
  bool got_response = false;  // the first byte of the response has come
};

HttpResponse HttpChannel::Impl::post(const std::string& target, const HttpRequest& request) {
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.timeout));
  for (;;) {
    HONE_CHECK(!aborted, name_of(target), ": the channel was aborted");
    const bool kept = socket.has_value();
    got_response = false;
    std::optional<HttpResponse> response;
    std::exception_ptr error;
    asio::co_spawn(io, exchange(target, request, deadline), [&](const std::exception_ptr& problem, HttpResponse got) {
      error = problem;
      response = std::move(got);
    });
    io.restart();
    io.run();
    if (!error) return std::move(*response);
    drop();
    try {
      std::rethrow_exception(error);
    } catch (const boost::system::system_error& problem) {
      const bool timed_out = problem.code() == beast::error::timeout;
      if (aborted || (kept && !got_response && !timed_out)) continue;
      fail(name_of(target), ": ",
           timed_out ? concat("no response within ", request.timeout, " seconds") : problem.code().message());
    }
  }
}

asio::awaitable<HttpResponse> HttpChannel::Impl::exchange(const std::string& target, const HttpRequest& request,
                                                          Clock::time_point deadline) {
  if (!socket) co_await connect(deadline);
  socket->expires_at(deadline);
  if (tls) co_return co_await exchange_over(*tls, target, request);
  co_return co_await exchange_over(*socket, target, request);
}

asio::awaitable<void> HttpChannel::Impl::connect(Clock::time_point deadline) {
  const auto addresses = co_await resolver.async_resolve(url.host, url.port, use_awaitable);
  if (aborted) throw boost::system::system_error(asio::error::operation_aborted);
  buffer.clear();
  socket.emplace(io);
  socket->expires_at(deadline);
  co_await socket->async_connect(addresses, use_awaitable);
  socket->socket().set_option(tcp::no_delay(true));
  socket->socket().set_option(asio::socket_base::keep_alive(true));
  if (!url.tls) co_return;
  if (!roots) {
    roots.emplace(asio::ssl::context::tls_client);
    roots->set_default_verify_paths();
    roots->set_verify_mode(asio::ssl::verify_peer);
    roots->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
  }
  tls.emplace(*socket, *roots);
  tls->set_verify_callback(asio::ssl::host_name_verification(url.host));
  boost::system::error_code not_an_address;
  asio::ip::make_address(url.host, not_an_address);
  if (not_an_address) SSL_set_tlsext_host_name(tls->native_handle(), url.host.c_str());
  co_await tls->async_handshake(asio::ssl::stream_base::client, use_awaitable);
}

template <class Stream>
asio::awaitable<HttpResponse> HttpChannel::Impl::exchange_over(Stream& stream, const std::string& target,
                                                               const HttpRequest& request) {
  http::request<http::span_body<const char>> message(request.is_get ? http::verb::get : http::verb::post, target, 11);
  message.set(http::field::host, url.port == (url.tls ? "443" : "80") ? host() : host() + ":" + url.port);
  message.set(http::field::user_agent, "hone");
  if (!request.is_get) message.set(http::field::content_type, request.content_type);
  for (const auto& [name, value] : request.headers) message.set(name, value);
  message.body() = {request.body.data(), request.body.size()};
  message.prepare_payload();
  co_await http::async_write(stream, message, use_awaitable);

  http::response_parser<http::string_body> parser;
  parser.body_limit(request.max_body);
  boost::system::error_code
      problem;  // reads the header first: else Beast 1.74 ignores body_limit for a stated content length
  co_await http::async_read_header(stream, buffer, parser, asio::redirect_error(use_awaitable, problem));
  got_response = parser.got_some();
  if (problem) throw boost::system::system_error(problem);
  co_await http::async_read(stream, buffer, parser, use_awaitable);
  HttpResponse out{
      .status = static_cast<int>(parser.get().result_int()), .body = {}, .headers = headers_of(parser.get())};
  out.body = std::move(parser.get().body());
  if (!parser.keep_alive() || buffer.size() > 0) drop();  // surplus bytes are not the response to the next request
  co_return out;
}

HttpChannel::HttpChannel(Url base) : impl_(std::make_unique<Impl>(std::move(base))) {}

HttpChannel::~HttpChannel() = default;

HttpResponse HttpChannel::post(const std::string& target, const HttpRequest& request) {
  return impl_->post(target, request);
}

bool HttpChannel::connected() const {
  if (!impl_->socket) return false;
  pollfd closed{impl_->socket->socket().native_handle(), POLLRDHUP, 0};  // poll() always reports errors as well
  return ::poll(&closed, 1, 0) == 0;
}

void HttpChannel::abort() {
  impl_->aborted = true;
  asio::post(impl_->io, [impl = impl_.get()] {
    impl->resolver.cancel();
    if (impl->socket) impl->socket->close();
  });
}

}  // namespace hone
