#pragma once
// HttpSession: one connection of HttpServer, plain or TLS. Heavy: http_server.cpp alone includes it.
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

// Beast's string_body reserves the length that a client announces. Here memory follows what has arrived.
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

// What one body takes of the bytes that all bodies may have together. One thread at a time has it.
class BodyShare {
 public:
  BodyShare(std::shared_ptr<std::atomic<int64_t>> total, int64_t limit) : total_(std::move(total)), limit_(limit) {}
  ~BodyShare() { release(); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  void release() { *total_ -= std::exchange(held_, 0); }
  // False, and nothing changes, if the total would pass the limit.
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
  // Ends it once no request is under way; from any thread.
  virtual void drain() = 0;
};

// Requests one after the other. While one is being answered the socket is read on by a byte's worth of the next, so
// that a client that leaves is noticed at once. All of it runs on the stream's strand.
template <class Stream>
class HttpSession final : public HttpConnection, public std::enable_shared_from_this<HttpSession<Stream>> {
 public:
  // body_bytes: of all sessions.
  HttpSession(Stream stream, const HttpServerConfig& config, HttpApp& app,
              std::shared_ptr<std::atomic<int64_t>> body_bytes)
      : stream_(std::move(stream)),
        wake_(stream_.get_executor()),
        config_(config),
        app_(app),
        body_bytes_(std::move(body_bytes)) {}

  void start(std::function<void()> when_over) {
    boost::asio::co_spawn(
        stream_.get_executor(), [self = this->shared_from_this()] { return self->run(); },
        [self = this->shared_from_this(), when_over = std::move(when_over)](std::exception_ptr) { when_over(); });
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
  static constexpr size_t kPeek = 4096;  // bytes of the next request that are read while one is answered
  static constexpr size_t kPiece =
      65536;  // of a longer body that are read at once: Beast reads as much as its buffer has room for

  auto& socket() { return boost::beast::get_lowest_layer(stream_); }

  awaitable<> run() {
    try {
      if constexpr (!std::is_same_v<Stream, boost::beast::tcp_stream>) {
        socket().expires_after(seconds_of(config_.request_timeout));
        co_await stream_.async_handshake(boost::asio::ssl::stream_base::server, use_awaitable);
      }
      for (bool more = true; more;) {  // no && between co_awaits: g++ 12 evaluates both
        more = co_await next_bytes();
        if (more) more = co_await serve();
      }
      co_await linger();
    } catch (const std::exception&) {  // the connection is of no more use, whatever it was
    }
    tell_left();
    Error ignored;
    socket().socket().close(ignored);
  }

  // Waits for the first bytes of a request; false if none come in time, or the client or the server wants to end.
  awaitable<bool> next_bytes() {
    if (buffer_.size() > 0) co_return !watching_;
    const auto deadline = std::chrono::steady_clock::now() + seconds_of(config_.idle_timeout);
    watch();
    while (watching_ && !draining_ && std::chrono::steady_clock::now() < deadline) co_await rest(deadline);
    co_return !watching_ && !left_;
  }

  // Reads what comes next into the empty buffer, once; not past the end, which is told only once.
  void watch() {
    if (watching_ || left_ || buffer_.size() > 0) return;
    watching_ = true;
    boost::asio::co_spawn(
        stream_.get_executor(),
        [self = this->shared_from_this()]() -> awaitable<> {
          Error error;
          self->socket().expires_never();
          const size_t count = co_await self->stream_.async_read_some(
              self->buffer_.prepare(kPeek), boost::asio::redirect_error(use_awaitable, error));
          self->buffer_.commit(count);
          self->watching_ = false;
          self->left_ = bool(error);
          if (error) self->tell_left();
          self->wake_.cancel();
        },
        boost::asio::detached);
  }

  void tell_left() {
    *ended_ = true;
    if (exchange_) exchange_->leave();
  }

  // There is something to send, or nobody to send it to: then what is being written ends, too.
  void wake() {
    if (exchange_ && exchange_->gone()) socket().close();
    wake_.cancel();
  }

  // Until woken, or until then.
  awaitable<> rest(std::chrono::steady_clock::time_point deadline) {
    wake_.expires_at(deadline);
    Error ignored;
    co_await wake_.async_wait(boost::asio::redirect_error(use_awaitable, ignored));
  }

  // One request and its answer; whether the connection may be used again.
  awaitable<bool> serve() {
    namespace http = boost::beast::http;
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(config_.max_header_bytes));
    parser.body_limit(static_cast<uint64_t>(config_.max_body_bytes));
    socket().expires_after(seconds_of(config_.request_timeout));
    Error error;
    co_await http::async_read_header(stream_, buffer_, parser, boost::asio::redirect_error(use_awaitable, error));
    if (error) co_return co_await turn_down(error);
    const HttpRequestInfo head = head_of(parser.get());
    const unsigned version = parser.get().version();
    headers_ = app_.headers_for(head);
    if (std::optional<HttpServerResponse> refusal = app_.reject_early(head)) {
      const bool keep = parser.is_done() && parser.keep_alive() && refusal->status != 401;
      co_await send(std::move(*refusal), version, head.method == "HEAD", keep);
      co_return keep;
    }
    if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on(http::status::continue_, version);
      co_await http::async_write(stream_, go_on, use_awaitable);
    }
    auto share = std::make_shared<BodyShare>(body_bytes_, config_.max_total_body_bytes);
    const bool whole = co_await read_body(parser, *share);
    if (!whole) co_return false;
    const bool keep = parser.keep_alive();
    const auto wake = [weak = this->weak_from_this()] {
      if (const auto self = weak.lock()) boost::asio::post(self->stream_.get_executor(), [self] { self->wake(); });
    };
    exchange_ = std::make_shared<HttpTransaction>(head, std::move(parser.get().body()),
                                                  static_cast<size_t>(config_.max_unsent_bytes), wake, ended_,
                                                  std::move(share));
    watch();
    std::string failure;
    try {
      app_.handle(exchange_);
    } catch (const std::bad_alloc&) {
      failure = "out of memory";
    } catch (const std::exception& problem) {
      failure = problem.what();
    }
    if (!failure.empty()) exchange_->reply(app_.error(500, failure));
    const bool kept = co_await answer(version, keep);
    exchange_.reset();
    co_return kept;
  }

  // False if it was turned down, or broke off. Short bodies are never in the way of each other.
  awaitable<bool> read_body(Parser& parser, BodyShare& share) {
    namespace http = boost::beast::http;
    if (parser.content_length_remaining().value_or(0) > kPiece) buffer_.reserve(kPiece);
    socket().expires_after(seconds_of(config_.body_timeout));
    while (!parser.is_done()) {
      Error error;
      co_await http::async_read_some(stream_, buffer_, parser, boost::asio::redirect_error(use_awaitable, error));
      if (error) co_return co_await turn_down(error);
      const size_t bytes = parser.get().body().size();
      if (bytes <= kPiece || share.grow_to(static_cast<int64_t>(bytes))) continue;
      parser.get().body() = {};
      share.release();  // before the answer is sent: others may go on meanwhile
      HttpServerResponse busy = app_.error(503, "other requests' bodies fill the memory for bodies; try again");
      busy.headers.emplace_back("Retry-After", "1");
      co_await send(std::move(busy), 11, false, false);
      co_return false;
    }
    co_return true;
  }

  // Sends the answer as it comes.
  awaitable<bool> answer(unsigned version, bool keep) {
    namespace http = boost::beast::http;
    const bool chunked = version >= 11;
    for (;;) {
      if (exchange_->gone()) co_return false;
      HttpTransaction::Outgoing out = exchange_->take();
      if (out.ended) exchange_->drop_body();
      if (out.start && !out.streamed) {
        out.start->body = std::move(out.bytes);
        keep = keep && !draining_;
        co_await send(std::move(*out.start), version, exchange_->head().method == "HEAD", keep);
        exchange_->sent();
        co_return keep;
      }
      if (out.start) {
        keep = keep && chunked && !draining_;
        http::response<http::empty_body> first = message_of<http::empty_body>(*out.start, version, keep);
        if (chunked) first.chunked(true);
        http::response_serializer<http::empty_body> serializer(first);
        patience();
        co_await http::async_write_header(stream_, serializer, use_awaitable);
      }
      if (!out.bytes.empty()) {
        patience();
        if (chunked)
          co_await boost::asio::async_write(stream_, http::make_chunk(boost::asio::buffer(out.bytes)), use_awaitable);
        else
          co_await boost::asio::async_write(stream_, boost::asio::buffer(out.bytes), use_awaitable);
      }
      if (out.ended) {
        patience();
        if (chunked) co_await boost::asio::async_write(stream_, http::make_chunk_last(), use_awaitable);
        exchange_->sent();
        co_return keep && !draining_;
      }
      if (!out.start && out.bytes.empty()) co_await rest(std::chrono::steady_clock::time_point::max());
    }
  }

  awaitable<> send(HttpServerResponse reply, unsigned version, bool head_only, bool keep) {
    namespace http = boost::beast::http;
    patience();
    if (head_only) {
      http::response<http::empty_body> out = message_of<http::empty_body>(reply, version, keep);
      out.content_length(reply.body.size());
      http::response_serializer<http::empty_body> serializer(out);
      co_await http::async_write_header(stream_, serializer, use_awaitable);
      co_return;
    }
    http::response<http::string_body> out = message_of<http::string_body>(reply, version, keep);
    out.body() = std::move(reply.body);
    out.prepare_payload();
    co_await http::async_write(stream_, out, use_awaitable);
  }

  // Answers a request that could not be read, where there is still somebody to answer.
  awaitable<bool> turn_down(Error error) {
    namespace http = boost::beast::http;
    if (error == http::error::end_of_stream || error == http::error::partial_message ||
        error.category() != http::make_error_code(http::error::bad_method).category())
      co_return false;
    HttpServerResponse reply =
        error == http::error::body_limit
            ? app_.error(413, concat("the body is longer than ", config_.max_body_bytes, " bytes"))
        : error == http::error::header_limit
            ? app_.error(431, concat("the header is longer than ", config_.max_header_bytes, " bytes"))
            : app_.error(400, "this is no HTTP request: " + error.message());
    co_await send(std::move(reply), 11, false, false);
    co_return false;
  }

  // What is closed with bytes unread is reset, and the client may lose the answer: so the end is told, and the rest is
  // read, for a moment.
  awaitable<> linger() {
    Error error;
    socket().socket().shutdown(boost::asio::ip::tcp::socket::shutdown_send, error);
    if (watching_ || left_) co_return;
    socket().expires_after(std::chrono::seconds(1));
    std::vector<char> waste(65536);
    while (!error)
      co_await socket().async_read_some(boost::asio::buffer(waste), boost::asio::redirect_error(use_awaitable, error));
  }

  void patience() { socket().expires_after(seconds_of(config_.write_timeout)); }

  template <class Body>
  boost::beast::http::response<Body> message_of(const HttpServerResponse& reply, unsigned version, bool keep) const {
    namespace http = boost::beast::http;
    http::response<Body> out(http::int_to_status(static_cast<unsigned>(reply.status)), version);
    out.set(http::field::server, "hone");
    out.set(http::field::content_type, reply.content_type);
    for (const HttpHeaders* headers : {&reply.headers, &headers_})
      for (const auto& [name, value] : *headers) out.set(name, value);
    out.keep_alive(keep);
    return out;
  }

  template <class Message>
  static HttpRequestInfo head_of(const Message& message) {
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
  HttpHeaders headers_;                        // of every answer to the request under way
  std::shared_ptr<HttpTransaction> exchange_;  // the request that is being answered
  const std::shared_ptr<std::atomic<bool>> ended_ =
      std::make_shared<std::atomic<bool>>(false);  // what those before learn of it by
  bool watching_ = false, left_ = false, draining_ = false;
};

}  // namespace hone
