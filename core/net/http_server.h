#pragma once
// HttpServer: HTTP/1.1 over TCP or TLS for an application that answers requests. Bounded in everything a client can
// make grow. Boost.Beast and OpenSSL stay in http_server.cpp.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/config/fields.h"
#include "core/net/http_transaction.h"

namespace hone {

struct HttpServerConfig {
  std::string host = "127.0.0.1";           // the address to listen at
  int64_t port = 8000;                      // 0 = any free one
  std::string tls_cert = {}, tls_key = {};  // PEM files, the chain and its key; none = no TLS
  int64_t max_header_bytes = 16384;         // of a request
  int64_t max_body_bytes = int64_t{8} << 20;
  int64_t max_total_body_bytes = int64_t{256} << 20;  // of the bodies of all connections; 64 KiB of each are free
  int64_t max_unsent_bytes = int64_t{4} << 20;        // of an answer, waiting for its reader
  int64_t max_connections = 4096;                     // further ones wait to be accepted
  double request_timeout = 30;  // seconds for TLS, and for a request's header to arrive once its first byte has
  double body_timeout = 30;     // seconds for its body after that
  double idle_timeout = 120;    // seconds a connection may wait for its next request
  double write_timeout = 30;    // seconds until a piece of the answer has been taken
  double peer_timeout = 120;    // seconds until a peer that acknowledges nothing any more counts as gone
  int64_t threads = 2;
  void fields(Fields& f);
};

class HttpApp {
 public:
  virtual ~HttpApp() = default;
  // Looks at a request before its body is read: an answer refuses it. A 401 closes the connection.
  virtual std::optional<HttpServerResponse> reject_early(const HttpRequestInfo&) { return std::nullopt; }
  // Headers of whatever is answered to the request, errors too.
  virtual HttpHeaders headers_for(const HttpRequestInfo&) { return {}; }
  // Called on one of the network's threads, which others' requests wait for: no more than a pass over the body; long
  // work belongs elsewhere. An exception is answered with error(500).
  virtual void handle(std::shared_ptr<HttpTransaction> exchange) = 0;
  // The answer to what the server itself turns down: 400, 413, 431, 500, 503.
  virtual HttpServerResponse error(int status, const std::string& message) = 0;
};

class HttpServer {
 public:
  // Listens; start() serves, on threads of its own. The application outlives it.
  HttpServer(const HttpServerConfig& config, HttpApp& app);
  ~HttpServer();
  void start();
  // Ends its threads: the application is not called any more. What is open is closed with the server itself.
  void stop();
  int64_t port() const;
  int64_t connections() const;
  // Accepts no more, closes idle connections, and lets requests under way have their answers, for so many seconds at
  // most. True if all had them; otherwise it may be called again to wait on.
  bool drain(double seconds);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
