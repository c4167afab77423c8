#pragma once
// HttpChannel: a persistent connection to one server. It connects at the first request, and again after a failure.
// Boost.Beast and OpenSSL stay in http_channel.cpp.
#include <memory>
#include <string>

#include "core/net/http_client.h"

namespace hone {

class HttpChannel {
 public:
  // Uses the URL's scheme, host and port. A server's certificate must be valid for the host under the system's roots,
  // or those of SSL_CERT_FILE and SSL_CERT_DIR.
  explicit HttpChannel(Url base);
  ~HttpChannel();

  // Sends a request and waits for the response; one thread at a time. If no complete response arrives within
  // request.timeout seconds, drops the connection and throws an Error that names the URL. The timeout does not cover
  // the lookup of the host name. A server may close an idle connection at any moment: a request that fails on a kept
  // connection before the first byte of its response is sent once more on a new one. The server may thus get it twice,
  // so that requests must be idempotent.
  HttpResponse post(const std::string& target, const HttpRequest& request);  // GET if request.is_get

  // True if there is a connection that the server has neither closed nor reset. Does not wait. Call it on the thread
  // that posts.
  bool connected() const;

  // Any thread may call it: makes the running post() and every later one throw.
  void abort();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
