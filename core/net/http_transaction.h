#pragma once
// HttpTransaction: an HTTP request to a server and its response. It does not depend on Asio.
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
  HttpHeaders headers = {};  // in addition to the usual ones
};

// The app's view of a request. The app calls respond(), or begin(), any number of write() and end(); on any thread, at
// once or later.
class HttpTransaction {
 public:
  // max_unsent: bytes that may wait for a slow client. wake: tells the connection that there is something to send.
  // ended: set when the connection has ended. body_share: lives as long as the body.
  HttpTransaction(HttpRequestInfo info, std::string body, size_t max_unsent, std::function<void()> wake,
                  std::shared_ptr<const std::atomic<bool>> ended, std::shared_ptr<void> body_share = nullptr);
  const HttpRequestInfo& info() const { return info_; }
  // Valid until the complete response is given, or drop_body().
  const std::string& body() const { return body_; }
  // Frees the body, so that a long response does not keep it. No other thread may read it at the same time.
  void drop_body() {
    body_ = {};
    body_share_.reset();
  }

  void respond(HttpServerResponse response);
  // Responds in pieces: first.body, then what `next` appends to its argument each time the previous piece is sent; it
  // returns false after the last piece. The connection's thread calls it, and destroys it with the connection. An
  // exception of `next` ends the connection.
  using NextPiece = std::function<bool(std::string& out)>;
  void respond(HttpServerResponse first, NextPiece next);
  void begin(HttpServerResponse first);  // its body is the first piece
  // Returns false if the client has disconnected. If more than max_unsent bytes would wait for a slow client, closes
  // the connection and returns false as well.
  bool write(std::string_view piece);
  void end();
  // Calls `action` once if the client disconnects before it has the complete response, on the thread that notices; at
  // once if it has disconnected already.
  void on_disconnect(std::function<void()> action);
  // True if the client has disconnected, before or after the response.
  bool disconnected() const;

  // ---- For the connection: what is to be sent.
  struct Outgoing {
    std::optional<HttpServerResponse> start;  // status and headers, once; its body is empty
    std::string bytes;
    bool streamed = false, ended = false;  // streamed: unknown length; ended: nothing follows
  };
  Outgoing take_outgoing();
  void mark_disconnected();
  void mark_sent();  // the client has the complete response

 private:
  const HttpRequestInfo info_;
  std::string body_;
  const size_t max_unsent_;
  const std::function<void()> wake_;
  const std::shared_ptr<const std::atomic<bool>> ended_;
  std::shared_ptr<void> body_share_;
  mutable std::mutex mutex_;
  Outgoing outgoing_;
  NextPiece next_;
  bool disconnected_ = false, sent_ = false;
  std::function<void()> on_disconnect_;
};

}  // namespace hone
