#pragma once
// HttpTransaction: an HTTP request that came to a server, and its answer on the way back. Free of Asio.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/net/http_headers.h"

namespace hone {

struct HttpRequestInfo {
  std::string method;  // "GET"
  std::string path;    // without the query
  HttpHeaders headers;
  std::string_view header(std::string_view name) const { return find_header(headers, name); }
};

struct HttpServerResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  HttpHeaders headers = {};  // further ones
};

// What the application sees of a request. It answers with a reply(), or with begin(), any number of write(), and end();
// from any thread, then or later.
class HttpTransaction {
 public:
  // max_unsent: bytes that may wait for a slow reader. wake tells the connection that there is something to send.
  // ended: set once the connection has. body_share: lives as long as the body.
  HttpTransaction(HttpRequestInfo head, std::string body, size_t max_unsent, std::function<void()> wake,
                  std::shared_ptr<const std::atomic<bool>> ended, std::shared_ptr<void> body_share = nullptr);
  const HttpRequestInfo& head() const { return head_; }
  // Until the whole answer is given, or drop_body().
  const std::string& body() const { return body_; }
  // Once it has been read: a long answer need not hold it. No other thread may read it meanwhile.
  void drop_body() {
    body_ = {};
    body_share_.reset();
  }

  void reply(HttpServerResponse whole);
  // The answer in pieces: first.body, then what `next` appends to the string it is given, as soon as the piece before
  // is sent; false: nothing follows. It is called on the connection's thread, and goes with the connection. What it
  // throws ends the connection.
  using NextPiece = std::function<bool(std::string& out)>;
  void reply(HttpServerResponse first, NextPiece next);
  void begin(HttpServerResponse first);  // its body is the first piece
  // False where the client has left, or reads so slowly that more than max_unsent bytes wait: then the connection is
  // closed.
  bool write(std::string_view piece);
  void end();
  // `action` is called at most once, on the thread that notices, if the client leaves before it has the whole answer;
  // at once if it has left already.
  void on_disconnect(std::function<void()> action);
  // Whether the client has left; after the answer, too, whatever its connection has carried since.
  bool gone() const;

  // The connection's side. What is to be sent, taken from here:
  struct Outgoing {
    std::optional<HttpServerResponse> start;  // the head, once; its body is empty
    std::string bytes;
    bool streamed = false, ended = false;  // streamed: the length is not known; ended: nothing follows
  };
  Outgoing take();
  void leave();  // the client has left
  void sent();   // it has the whole answer

 private:
  const HttpRequestInfo head_;
  std::string body_;
  const size_t max_unsent_;
  const std::function<void()> wake_;
  const std::shared_ptr<const std::atomic<bool>> ended_;
  std::shared_ptr<void> body_share_;
  mutable std::mutex mutex_;
  Outgoing outgoing_;
  NextPiece next_;
  bool gone_ = false, sent_ = false;
  std::function<void()> when_gone_;
};

}  // namespace hone
