#pragma once
// A server for tests of HTTP clients: it answers each POST with whatever bytes the test says, well-formed or not.
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

// The bytes of a response with status 200 (or another) and its length.
std::string http_response(const std::string& body, int status = 200, const std::string& more_headers = "");

class HttpServer {
 public:
  // Called on the connection's own thread; the connection is closed once its bytes are sent.
  using Handler = std::function<std::string(const ReceivedRequest&)>;
  // On a free port of 127.0.0.1. With tls it has a certificate of its own making for the given host ("localhost", say),
  // which nobody vouches for.
  explicit HttpServer(Handler handler, const std::string& tls_host = "");
  ~HttpServer();
  std::string url(const std::string& host = "127.0.0.1", const std::string& path = "/reward") const;
  // The certificate as a file of roots, for SSL_CERT_FILE.
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
