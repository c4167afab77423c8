#pragma once
// A server for tests of HTTP clients. It answers each POST with the bytes that the test gives, valid or not.
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/support.h"

namespace hone::test {

struct ReceivedRequest {
  std::string head, body;  // the head with its request line
};

// Returns the bytes of a response with its status and length.
std::string http_response(const std::string& body, int status = 200, const std::string& more_headers = "");

class HttpServer {
 public:
  // Called on the connection's thread. The connection closes after the bytes are sent.
  using Handler = std::function<std::string(const ReceivedRequest&)>;
  // Listens on a free port of 127.0.0.1. With tls_host it has a self-signed certificate for that host ("localhost").
  explicit HttpServer(Handler handler, const std::string& tls_host = "");
  ~HttpServer();
  std::string url(const std::string& host = "127.0.0.1", const std::string& path = "/reward") const;
  // The path of the certificate as a file of roots, for SSL_CERT_FILE.
  std::string certificate_file() const { return (folder_.path() / "certificate.pem").string(); }
  int connections() const { return connections_; }

 private:
  void serve();
  void answer(int socket);
  void make_certificate(const std::string& host);

  Handler handler_;
  TemporaryFolder folder_;
  void* tls_ = nullptr;  // SSL_CTX
  int listener_ = -1, port_ = 0;
  std::atomic<int> connections_{0};
  std::atomic<bool> closing_{false};
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace hone::test
