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
  f("host", host, "address to listen at; 0.0.0.0 is every one of this machine's");
  f("port", port, "port to listen at; 0 = any free one");
  f("tls_cert", tls_cert, "PEM file of the certificate and its chain; none = no TLS");
  f("tls_key", tls_key, "PEM file of the certificate's key");
  f("max_header_bytes", max_header_bytes, "longest header of a request");
  f("max_body_bytes", max_body_bytes, "longest body of a request");
  f("max_total_body_bytes", max_total_body_bytes,
    "of bodies that arrive or are read at the same time, those of up to 64 KiB left out; more are answered 503");
  f("max_unsent_bytes", max_unsent_bytes,
    "of an answer that a slow reader has not taken yet; more closes the connection");
  f("max_connections", max_connections, "open at the same time; further ones wait");
  f("request_timeout", request_timeout, "seconds a request's header may take to arrive");
  f("body_timeout", body_timeout, "seconds its body may take after that");
  f("idle_timeout", idle_timeout, "seconds a connection may be without a request");
  f("write_timeout", write_timeout, "seconds a client may take to accept a piece of the answer");
  f("peer_timeout", peer_timeout, "seconds until a peer that vanished without a word counts as gone");
  f("threads", threads, "that read requests and write answers");
  f.require("port", port >= 0 && port <= 65535, "port must be in [0, 65535]");
  f.require("tls_key", tls_cert.empty() == tls_key.empty(), "tls_cert and tls_key go together");
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
  std::mutex mutex;  // of what follows, up to closed
  std::condition_variable changed;
  std::set<std::weak_ptr<HttpConnection>, std::owner_less<>> sessions;
  bool draining = false, closed = false;  // closed: it does not listen any more
  std::optional<asio::ssl::context> tls;
  asio::io_context io;  // holds the sessions' coroutines: it ends before what they refer to
  tcp::acceptor acceptor;
  std::vector<std::thread> threads;
};

// A connection is an open file, and the usual limit is 1024 of them.
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
  HONE_CHECK(!error, "host '", config.host, "' is no address of this machine such as 127.0.0.1, 0.0.0.0 or ::1");
  const tcp::endpoint here(address, static_cast<uint16_t>(config.port));
  try {
    acceptor.open(here.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(here);
    acceptor.listen(asio::socket_base::max_listen_connections);
    port = acceptor.local_endpoint().port();
  } catch (const boost::system::system_error& problem) {
    fail("cannot listen at ", config.host, " port ", config.port, ": ", problem.code().message());
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
  const auto forget = [this, entry] {
    const std::lock_guard lock(mutex);
    sessions.erase(entry);
    changed.notify_all();
  };
  try {
    session->start(forget);
  } catch (...) {
    forget();
    throw;
  }
}

void HttpServer::Impl::start(tcp::socket socket) {
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  // A peer that vanished without a word is asked after silence, and given up where it does not acknowledge that, or
  // what was sent to it.
  const auto seconds = [&](double share) {
    return std::clamp(static_cast<int>(share * config.peer_timeout), 1, 32767);
  };  // what TCP takes
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>(seconds(0.5)), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>(seconds(0.125)), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>(4), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_USER_TIMEOUT>(1000 * seconds(1)), ignored);
  // What waits unsent in the kernel counts, too: it would take megabytes by itself.
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
    } catch (const std::exception& problem) {  // no memory: this one goes, others come
      log::warning("http: a connection was not taken: ", problem.what());
      accepted = false;
    }
    if (accepted) continue;
    // No room here, no memory, or no file left in the process: some connection will end.
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
        } catch (const std::exception& problem) {  // of one handler; the others are still there
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
