#pragma once
// HttpChannel: one kept connection to a server, made when it is first needed and again after it broke. Boost.Beast and
// OpenSSL stay in http_channel.cpp.
#include <memory>
#include <string>

#include "core/net/http_client.h"

namespace hone {

class HttpChannel {
 public:
  // Of the URL scheme, host and port count. A server's certificate has to be valid for the host by the system's roots
  // (or those that SSL_CERT_FILE and SSL_CERT_DIR name).
  explicit HttpChannel(Url base);
  ~HttpChannel();

  // One exchange; blocks; one thread at a time. Whatever keeps a whole response from coming within request.timeout
  // seconds is an Error that names the URL, and the connection is dropped. Looking up the host's name takes as long as
  // the system takes over it. A server may close an idle connection at any moment. So a request that breaks on a kept
  // connection before any byte of its answer came is sent once more, on a new one; the server may then have it twice.
  // Post only what does no harm twice.
  HttpResponse post(const std::string& target, const HttpRequest& request);

  // Whether there is a connection that the other side has neither closed nor reset. Returns at once; the thread that
  // posts.
  bool connected() const;

  // From any thread: ends the exchange under way, and every later one, with an Error.
  void abort();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
