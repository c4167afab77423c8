#pragma once
// HttpServer: HTTP/1.1 over TCP or TLS for an HttpApp. Everything that a client can make grow is bounded. Boost.Beast
// and OpenSSL stay in http_server.cpp.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/config/fields.h"
#include "core/net/http_transaction.h"

namespace hone {

struct HttpServerConfig {
  std::string host = "127.0.0.1";           // address to listen on
  int64_t port = 8000;                      // 0 = any free one
  std::string tls_cert = {}, tls_key = {};  // PEM files of the chain and its key; "" = no TLS
  int64_t max_header_bytes = 16384;         // of a request
  int64_t max_body_bytes = int64_t{8} << 20;
  int64_t max_total_body_bytes = int64_t{256} << 20;  // of the bodies of all connections; 64 KiB of each are free
  int64_t max_unsent_bytes = int64_t{4} << 20;        // of a response, waiting for a slow reader
  int64_t max_connections = 4096;                     // further connections wait to be accepted
  double request_timeout = 30;  // seconds for the TLS handshake, and for a request's header after its first byte
  double body_timeout = 30;     // seconds for the body after the header
  double idle_timeout = 120;    // seconds without a request before a connection is closed
  double write_timeout = 30;    // seconds for the client to accept a piece of the response
  double peer_timeout = 120;    // seconds without a TCP acknowledgment before a client counts as gone
  int64_t threads = 2;
  void fields(Fields& f);
};

class HttpApp {
 public:
  virtual ~HttpApp() = default;
  // Called before a request's body is read. A response rejects the request; status 401 also closes the connection.
  virtual std::optional<HttpServerResponse> reject_early(const HttpRequestInfo&) { return std::nullopt; }
  // Headers of every response to the request, errors included.
  virtual HttpHeaders headers_for(const HttpRequestInfo&) { return {}; }
  // Called on a network thread, which serves other requests as well: do not do more than read the body once here, and
  // respond later from another thread. An exception becomes error(500).
  virtual void handle(std::shared_ptr<HttpTransaction> transaction) = 0;
  // The response to a request that the server itself rejects: status 400, 413, 431, 500 or 503.
  virtual HttpServerResponse error(int status, const std::string& message) = 0;
};

class HttpServer {
 public:
  // Listens; start() starts the network threads. `app` must outlive the server.
  HttpServer(const HttpServerConfig& config, HttpApp& app);
  ~HttpServer();
  void start();
  // Ends the threads; the app is not called after that. The destructor closes open connections.
  void stop();
  int64_t port() const;
  int64_t connections() const;
  // Accepts no more connections, closes idle ones, and waits up to `seconds` for pending responses. Returns true if all
  // are sent; otherwise it may be called again.
  bool drain(double seconds);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
