#include "core/net/http_server.h"

#include <sys/resource.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/net/http_session.h"

namespace hone {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;

void HttpServerConfig::fields(Fields& f) {
  f("host", host, "address to listen on; 0.0.0.0 = all addresses of this machine");
  f("port", port, "port to listen on; 0 = any free port");
  f("tls_cert", tls_cert, "PEM file of the certificate chain; empty = no TLS");
  f("tls_key", tls_key, "PEM file of the certificate's private key; needed with tls_cert");
  f("max_header_bytes", max_header_bytes, "maximum header of a request in bytes");
  f("max_body_bytes", max_body_bytes, "maximum body of a request in bytes");
  f("max_total_body_bytes", max_total_body_bytes,
    "maximum bytes of all request bodies that are in memory, not counting bodies of up to 64 KiB; requests beyond it "
    "get "
    "status 503");
  f("max_unsent_bytes", max_unsent_bytes,
    "maximum bytes of a response that wait for a slow client; beyond it the connection is closed");
  f("max_connections", max_connections, "maximum number of open connections; further ones wait");
  f("request_timeout", request_timeout, "seconds for a request's header to arrive");
  f("body_timeout", body_timeout, "seconds for a request's body to arrive after its header");
  f("idle_timeout", idle_timeout, "seconds without a request after which a connection is closed");
  f("write_timeout", write_timeout, "seconds for a client to accept a piece of a response");
  f("peer_timeout", peer_timeout, "seconds without a TCP acknowledgment after which a client counts as gone");
  f("threads", threads, "number of network threads");
  f.require("port", port >= 0 && port <= 65535, "port must be in [0, 65535]");
  f.require("tls_key", tls_cert.empty() == tls_key.empty(), "tls_cert and tls_key must be set together");
  f.require("max_header_bytes", max_header_bytes >= 1024 && max_header_bytes <= 1 << 24,
            "max_header_bytes must be in [1024, 2^24]");
  f.require("max_body_bytes", max_body_bytes > 0 && max_body_bytes <= int64_t{1} << 32,
            "max_body_bytes must be in [1, 2^32]");
  f.require("max_total_body_bytes", max_total_body_bytes >= max_body_bytes,
            "max_total_body_bytes must be at least max_body_bytes");
  f.require("max_unsent_bytes", max_unsent_bytes > 0, "max_unsent_bytes must be positive");
  f.require("max_connections", max_connections > 0, "max_connections must be positive");
  for (const auto& [key, seconds] : {std::pair{"request_timeout", request_timeout},
                                     {"body_timeout", body_timeout},
                                     {"idle_timeout", idle_timeout},
                                     {"write_timeout", write_timeout},
                                     {"peer_timeout", peer_timeout}})
    f.require(key, seconds > 0 && seconds <= 1e6, concat(key, " must be in (0, 1e6] seconds"));
  f.require("threads", threads > 0 && threads <= 256, "threads must be in [1, 256]");
}

struct HttpServer::Impl {
  Impl(const HttpServerConfig& c, HttpApp& a)
      : config(c), app(a), io(static_cast<int>(c.threads)), acceptor(asio::make_strand(io)) {}

  void listen();
  void load_certificate();
  asio::awaitable<void> accept();
  void start(tcp::socket socket);
  template <class Stream>
  void begin(Stream stream);

  const HttpServerConfig config;
  HttpApp& app;
  const std::shared_ptr<std::atomic<int64_t>> body_bytes = std::make_shared<std::atomic<int64_t>>(0);  // BodyShare's
  int64_t port = 0;
  std::mutex mutex;  // guards the members up to `closed`
  std::condition_variable changed;
  std::set<std::weak_ptr<HttpConnection>, std::owner_less<>> sessions;
  bool draining = false, closed = false;  // closed: the acceptor is closed
  std::optional<asio::ssl::context> tls;
  asio::io_context io;  // owns the sessions' coroutines: destroyed before the members above, which they use
  tcp::acceptor acceptor;
  std::vector<std::thread> threads;
};

// Each connection is an open file, and the usual limit of a process is 1024.
static void allow_open_files(int64_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto wanted = std::min(limit.rlim_max, static_cast<rlim_t>(count + 256));
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void HttpServer::Impl::load_certificate() {
  tls.emplace(asio::ssl::context::tls_server);
  tls->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1 | asio::ssl::context::no_compression);
  boost::system::error_code error;
  tls->use_certificate_chain_file(config.tls_cert, error);
  HONE_CHECK(!error, "tls_cert ", config.tls_cert, ": ", error.message());
  tls->use_private_key_file(config.tls_key, asio::ssl::context::pem, error);
  HONE_CHECK(!error, "tls_key ", config.tls_key, ": ", error.message());
}

void HttpServer::Impl::listen() {
  boost::system::error_code error;
  const asio::ip::address address =
      asio::ip::make_address(config.host == "localhost" ? "127.0.0.1" : config.host, error);
  HONE_CHECK(!error, "host '", config.host,
             "' is not an IP address; use 127.0.0.1, 0.0.0.0, ::1 or another address of this machine");
  const tcp::endpoint here(address, static_cast<uint16_t>(config.port));
  try {
    acceptor.open(here.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(here);
    acceptor.listen(asio::socket_base::max_listen_connections);
    port = acceptor.local_endpoint().port();
  } catch (const boost::system::system_error& problem) {
    fail("cannot listen on ", config.host, " port ", config.port, ": ", problem.code().message());
  }
}

template <class Stream>
void HttpServer::Impl::begin(Stream stream) {
  const auto session = std::make_shared<HttpSession<Stream>>(std::move(stream), config, app, body_bytes);
  const std::weak_ptr<HttpConnection> entry = session;
  {
    const std::lock_guard lock(mutex);
    sessions.insert(entry);
    if (draining) session->drain();
  }
  const auto erase_session = [this, entry] {
    const std::lock_guard lock(mutex);
    sessions.erase(entry);
    changed.notify_all();
  };
  try {
    session->start(erase_session);
  } catch (...) {
    erase_session();
    throw;
  }
}

void HttpServer::Impl::start(tcp::socket socket) {
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  // Detects a client that vanished: TCP probes an idle connection, and closes it if neither probes nor data are
  // acknowledged.
  const auto seconds = [&](double share) {
    return std::clamp(static_cast<int>(share * config.peer_timeout), 1, 32767);
  };  // the range of the socket options
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>(seconds(0.5)), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>(seconds(0.125)), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>(4), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_USER_TIMEOUT>(1000 * seconds(1)), ignored);
  // Bounds the unsent bytes in the kernel as well, which would buffer megabytes.
  const int unsent = static_cast<int>(std::min<int64_t>(config.max_unsent_bytes, INT32_MAX));
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_NOTSENT_LOWAT>(unsent), ignored);
  if (tls)
    begin(beast::ssl_stream<beast::tcp_stream>(beast::tcp_stream(std::move(socket)), *tls));
  else
    begin(beast::tcp_stream(std::move(socket)));
}

asio::awaitable<void> HttpServer::Impl::accept() {
  asio::steady_timer pause(acceptor.get_executor());
  for (;;) {
    const auto full = [&] {
      const std::lock_guard lock(mutex);
      return static_cast<int64_t>(sessions.size()) >= config.max_connections;
    };
    bool accepted = false;
    try {
      boost::system::error_code error;
      tcp::socket socket(asio::make_strand(io));
      if (!full()) co_await acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
      if (!acceptor.is_open()) co_return;
      accepted = !error && socket.is_open();
      if (accepted) start(std::move(socket));
    } catch (const std::exception& problem) {  // out of memory: only this connection is dropped
      log::warning("http: a connection was not accepted: ", problem.what());
      accepted = false;
    }
    if (accepted) continue;
    // Too many connections, out of memory, or no file descriptor left: wait for a connection to end.
    pause.expires_after(std::chrono::milliseconds(20));
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

HttpServer::HttpServer(const HttpServerConfig& config, HttpApp& app) : impl_(std::make_unique<Impl>(config, app)) {
  allow_open_files(config.max_connections);
  if (!config.tls_cert.empty()) impl_->load_certificate();
  impl_->listen();
}

HttpServer::~HttpServer() { stop(); }

void HttpServer::start() {
  asio::co_spawn(
      impl_->acceptor.get_executor(), [impl = impl_.get()] { return impl->accept(); }, asio::detached);
  for (int64_t i = 0; i < impl_->config.threads; ++i)
    impl_->threads.emplace_back([impl = impl_.get()] {
      const auto work = asio::make_work_guard(impl->io);
      for (bool running = true; running;) {
        try {
          impl->io.run();
          running = false;
        } catch (const std::exception& problem) {  // of one handler; the others continue
          log::error("http: ", problem.what());
        }
      }
    });
}

void HttpServer::stop() {
  impl_->io.stop();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

int64_t HttpServer::port() const { return impl_->port; }

int64_t HttpServer::connections() const {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<int64_t>(impl_->sessions.size());
}

bool HttpServer::drain(double seconds) {
  asio::post(impl_->acceptor.get_executor(), [impl = impl_.get()] {
    impl->acceptor.close();
    const std::lock_guard lock(impl->mutex);
    impl->closed = true;
    impl->changed.notify_all();
  });
  std::unique_lock lock(impl_->mutex);
  impl_->draining = true;
  for (const auto& entry : impl_->sessions)
    if (const auto session = entry.lock()) session->drain();
  return impl_->changed.wait_for(lock, seconds_of(seconds), [&] { return impl_->closed && impl_->sessions.empty(); });
}

}  // namespace hone
