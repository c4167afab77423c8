#pragma once
// HttpSession: one connection of HttpServer, plain or TLS. Only http_server.cpp includes it, because its Boost headers
// are slow to compile.
#include <atomic>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <new>
#include <utility>

#include "core/net/http_server.h"

namespace hone {

inline std::chrono::steady_clock::duration seconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

// A body whose memory grows with the bytes that have arrived. Beast's string_body reserves the length that a client
// announces.
struct ArrivedBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      error = {};
      const size_t size = body_.size(), more = boost::beast::buffer_bytes(buffers);
      body_.resize(size + more);
      return boost::asio::buffer_copy(boost::asio::buffer(body_.data() + size, more), buffers);
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

// The bytes of one body in the bound that all bodies share. One thread at a time.
class BodyShare {
 public:
  BodyShare(std::shared_ptr<std::atomic<int64_t>> total, int64_t limit) : total_(std::move(total)), limit_(limit) {}
  ~BodyShare() { release(); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  void release() { *total_ -= std::exchange(held_, 0); }
  // Returns false and changes nothing if the total would exceed the limit.
  bool grow_to(int64_t bytes) {
    const int64_t more = bytes - held_;
    int64_t total = total_->load();
    do {
      if (total + more > limit_) return false;
    } while (!total_->compare_exchange_weak(total, total + more));
    held_ = bytes;
    return true;
  }

 private:
  const std::shared_ptr<std::atomic<int64_t>> total_;
  const int64_t limit_;
  int64_t held_ = 0;
};

class HttpConnection {
 public:
  virtual ~HttpConnection() = default;
  // Ends the connection when its current request is done. Any thread.
  virtual void drain() = 0;
};

// Serves requests one after another. While a response is pending it reads ahead into the next request, so that it
// notices at once if the client disconnects. Everything runs on the stream's strand.
template <class Stream>
class HttpSession final : public HttpConnection, public std::enable_shared_from_this<HttpSession<Stream>> {
 public:
  // body_bytes: the bodies of all sessions.
  HttpSession(Stream stream, const HttpServerConfig& config, HttpApp& app,
              std::shared_ptr<std::atomic<int64_t>> body_bytes)
      : stream_(std::move(stream)),
        wake_(stream_.get_executor()),
        config_(config),
        app_(app),
        body_bytes_(std::move(body_bytes)) {}

  void start(std::function<void()> on_end) {
    boost::asio::co_spawn(
        stream_.get_executor(), [self = this->shared_from_this()] { return self->run(); },
        [self = this->shared_from_this(), on_end = std::move(on_end)](std::exception_ptr) { on_end(); });
  }
  void drain() override {
    boost::asio::post(stream_.get_executor(), [self = this->shared_from_this()] {
      self->draining_ = true;
      self->wake_.cancel();
    });
  }

 private:
  template <class T = void>
  using awaitable = boost::asio::awaitable<T>;
  using Error = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<ArrivedBody>;
  static constexpr boost::asio::use_awaitable_t<> use_awaitable{};
  static constexpr size_t kReadAheadBytes = 4096;  // of the next request, during a response
  static constexpr size_t kBodyReadBytes =
      65536;  // of a long body in one read: Beast reads up to the buffer's capacity

  auto& socket() { return boost::beast::get_lowest_layer(stream_); }

  awaitable<> run() {
    try {
      if constexpr (!std::is_same_v<Stream, boost::beast::tcp_stream>) {
        socket().expires_after(seconds_of(config_.request_timeout));
        co_await stream_.async_handshake(boost::asio::ssl::stream_base::server, use_awaitable);
      }
      for (bool more = true; more;) {  // no && between co_awaits: g++ 12 evaluates both
        more = co_await wait_for_request();
        if (more) more = co_await serve();
      }
      co_await linger();
    } catch (const std::exception&) {  // whatever failed, the connection is closed
    }
    notify_disconnected();
    Error ignored;
    socket().socket().close(ignored);
  }

  // Waits for the first bytes of a request. Returns false after the idle timeout, or if client or server ends the
  // connection.
  awaitable<bool> wait_for_request() {
    if (buffer_.size() > 0) co_return !reading_ahead_;
    const auto deadline = std::chrono::steady_clock::now() + seconds_of(config_.idle_timeout);
    start_read_ahead();
    while (reading_ahead_ && !draining_ && std::chrono::steady_clock::now() < deadline) co_await wait_until(deadline);
    co_return !reading_ahead_ && !client_closed_;
  }

  // Starts one read into the empty buffer. After the end of the stream it starts none: the end is reported only once.
  void start_read_ahead() {
    if (reading_ahead_ || client_closed_ || buffer_.size() > 0) return;
    reading_ahead_ = true;
    boost::asio::co_spawn(
        stream_.get_executor(),
        [self = this->shared_from_this()]() -> awaitable<> {
          Error error;
          self->socket().expires_never();
          const size_t count = co_await self->stream_.async_read_some(
              self->buffer_.prepare(kReadAheadBytes), boost::asio::redirect_error(use_awaitable, error));
          self->buffer_.commit(count);
          self->reading_ahead_ = false;
          self->client_closed_ = bool(error);
          if (error) self->notify_disconnected();
          self->wake_.cancel();
        },
        boost::asio::detached);
  }

  void notify_disconnected() {
    *ended_ = true;
    if (transaction_) transaction_->mark_disconnected();
  }

  // Called when there is something to send, or the client has disconnected; the socket is then closed.
  void wake() {
    if (transaction_ && transaction_->disconnected()) socket().close();
    wake_.cancel();
  }

  // Waits until woken or until the deadline.
  awaitable<> wait_until(std::chrono::steady_clock::time_point deadline) {
    wake_.expires_at(deadline);
    Error ignored;
    co_await wake_.async_wait(boost::asio::redirect_error(use_awaitable, ignored));
  }

  // Serves one request. Returns true if the connection may be used again.
  awaitable<bool> serve() {
    namespace http = boost::beast::http;
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(config_.max_header_bytes));
    parser.body_limit(static_cast<uint64_t>(config_.max_body_bytes));
    socket().expires_after(seconds_of(config_.request_timeout));
    Error error;
    co_await http::async_read_header(stream_, buffer_, parser, boost::asio::redirect_error(use_awaitable, error));
    if (error) co_return co_await send_parse_error(error);
    const HttpRequestInfo info = info_of(parser.get());
    const unsigned version = parser.get().version();
    headers_ = app_.headers_for(info);
    if (std::optional<HttpServerResponse> refusal = app_.reject_early(info)) {
      const bool keep = parser.is_done() && parser.keep_alive() && refusal->status != 401;
      co_await send(std::move(*refusal), version, info.method == "HEAD", keep);
      co_return keep;
    }
    if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      http::response<http::empty_body> continue_response(http::status::continue_, version);
      co_await http::async_write(stream_, continue_response, use_awaitable);
    }
    auto share = std::make_shared<BodyShare>(body_bytes_, config_.max_total_body_bytes);
    const bool complete = co_await read_body(parser, *share);
    if (!complete) co_return false;
    const bool keep = parser.keep_alive();
    const auto wake = [weak = this->weak_from_this()] {
      if (const auto self = weak.lock()) boost::asio::post(self->stream_.get_executor(), [self] { self->wake(); });
    };
    transaction_ = std::make_shared<HttpTransaction>(info, std::move(parser.get().body()),
                                                     static_cast<size_t>(config_.max_unsent_bytes), wake, ended_,
                                                     std::move(share));
    start_read_ahead();
    std::string failure;
    try {
      app_.handle(transaction_);
    } catch (const std::bad_alloc&) {
      failure = "out of memory";
    } catch (const std::exception& problem) {
      failure = problem.what();
    }
    if (!failure.empty()) transaction_->respond(app_.error(500, failure));
    const bool kept = co_await send_response(version, keep);
    transaction_.reset();
    co_return kept;
  }

  // Reads the body. Returns false if it was rejected or broke off. Short bodies are not counted, so that they never
  // wait for long ones.
  awaitable<bool> read_body(Parser& parser, BodyShare& share) {
    namespace http = boost::beast::http;
    if (parser.content_length_remaining().value_or(0) > kBodyReadBytes) buffer_.reserve(kBodyReadBytes);
    socket().expires_after(seconds_of(config_.body_timeout));
    while (!parser.is_done()) {
      Error error;
      co_await http::async_read_some(stream_, buffer_, parser, boost::asio::redirect_error(use_awaitable, error));
      if (error) co_return co_await send_parse_error(error);
      const size_t bytes = parser.get().body().size();
      if (bytes <= kBodyReadBytes || share.grow_to(static_cast<int64_t>(bytes))) continue;
      parser.get().body() = {};
      share.release();  // before the response is sent, so that other requests can continue
      HttpServerResponse busy = app_.error(503, "other requests' bodies fill the memory for bodies; try again");
      busy.headers.emplace_back("Retry-After", "1");
      co_await send(std::move(busy), 11, false, false);
      co_return false;
    }
    co_return true;
  }

  // Sends the response as the app produces it.
  awaitable<bool> send_response(unsigned version, bool keep) {
    namespace http = boost::beast::http;
    const bool chunked = version >= 11;
    for (;;) {
      if (transaction_->disconnected()) co_return false;
      HttpTransaction::Outgoing out = transaction_->take_outgoing();
      if (out.ended) transaction_->drop_body();
      if (out.start && !out.streamed) {
        out.start->body = std::move(out.bytes);
        keep = keep && !draining_;
        co_await send(std::move(*out.start), version, transaction_->info().method == "HEAD", keep);
        transaction_->mark_sent();
        co_return keep;
      }
      if (out.start) {
        keep = keep && chunked && !draining_;
        http::response<http::empty_body> first = message_of<http::empty_body>(*out.start, version, keep);
        if (chunked) first.chunked(true);
        http::response_serializer<http::empty_body> serializer(first);
        start_write_timeout();
        co_await http::async_write_header(stream_, serializer, use_awaitable);
      }
      if (!out.bytes.empty()) {
        start_write_timeout();
        if (chunked)
          co_await boost::asio::async_write(stream_, http::make_chunk(boost::asio::buffer(out.bytes)), use_awaitable);
        else
          co_await boost::asio::async_write(stream_, boost::asio::buffer(out.bytes), use_awaitable);
      }
      if (out.ended) {
        start_write_timeout();
        if (chunked) co_await boost::asio::async_write(stream_, http::make_chunk_last(), use_awaitable);
        transaction_->mark_sent();
        co_return keep && !draining_;
      }
      if (!out.start && out.bytes.empty()) co_await wait_until(std::chrono::steady_clock::time_point::max());
    }
  }

  awaitable<> send(HttpServerResponse response, unsigned version, bool head_only, bool keep) {
    namespace http = boost::beast::http;
    start_write_timeout();
    if (head_only) {
      http::response<http::empty_body> out = message_of<http::empty_body>(response, version, keep);
      out.content_length(response.body.size());
      http::response_serializer<http::empty_body> serializer(out);
      co_await http::async_write_header(stream_, serializer, use_awaitable);
      co_return;
    }
    http::response<http::string_body> out = message_of<http::string_body>(response, version, keep);
    out.body() = std::move(response.body);
    out.prepare_payload();
    co_await http::async_write(stream_, out, use_awaitable);
  }

  // Responds to a request that could not be parsed, unless the client has disconnected.
  awaitable<bool> send_parse_error(Error error) {
    namespace http = boost::beast::http;
    if (error == http::error::end_of_stream || error == http::error::partial_message ||
        error.category() != http::make_error_code(http::error::bad_method).category())
      co_return false;
    HttpServerResponse response =
        error == http::error::body_limit
            ? app_.error(413, concat("the body is longer than ", config_.max_body_bytes, " bytes"))
        : error == http::error::header_limit
            ? app_.error(431, concat("the header is longer than ", config_.max_header_bytes, " bytes"))
            : app_.error(400, "not a valid HTTP request: " + error.message());
    co_await send(std::move(response), 11, false, false);
    co_return false;
  }

  // Closing a socket with unread bytes resets it, and the client may lose the response. So this shuts down sending and
  // reads the rest for up to a second.
  awaitable<> linger() {
    Error error;
    socket().socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, error);
    if (reading_ahead_ || client_closed_) co_return;
    socket().expires_after(std::chrono::seconds(1));
    std::vector<char> waste(65536);
    while (!error)
      co_await socket().async_read_some(boost::asio::buffer(waste), boost::asio::redirect_error(use_awaitable, error));
  }

  void start_write_timeout() { socket().expires_after(seconds_of(config_.write_timeout)); }

  template <class Body>
  boost::beast::http::response<Body> message_of(const HttpServerResponse& response, unsigned version, bool keep) const {
    namespace http = boost::beast::http;
    http::response<Body> out(http::int_to_status(static_cast<unsigned>(response.status)), version);
    out.set(http::field::server, "hone");
    out.set(http::field::content_type, response.content_type);
    for (const HttpHeaders* headers : {&response.headers, &headers_})
      for (const auto& [name, value] : *headers) out.set(name, value);
    out.keep_alive(keep);
    return out;
  }

  template <class Message>
  static HttpRequestInfo info_of(const Message& message) {
    HttpRequestInfo out{.method = std::string(message.method_string()),
                        .path = std::string(message.target()),
                        .headers = headers_of(message)};
    out.path = out.path.substr(0, out.path.find('?'));
    return out;
  }

  Stream stream_;
  boost::asio::steady_timer wake_;
  const HttpServerConfig& config_;
  HttpApp& app_;
  const std::shared_ptr<std::atomic<int64_t>> body_bytes_;
  boost::beast::flat_buffer buffer_;
  HttpHeaders headers_;                           // of every response to the current request
  std::shared_ptr<HttpTransaction> transaction_;  // the current request
  const std::shared_ptr<std::atomic<bool>> ended_ =
      std::make_shared<std::atomic<bool>>(false);  // shared with earlier transactions of the connection
  bool reading_ahead_ = false, client_closed_ = false, draining_ = false;
};

}  // namespace hone
