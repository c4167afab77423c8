#include "tests/support/http_server.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>

namespace hone::test {
namespace {

// A connection, with or without TLS.
struct Connection {
  int socket;
  SSL* tls;
  long read(char* data, size_t size) {
    return tls ? SSL_read(tls, data, static_cast<int>(size)) : ::recv(socket, data, size, 0);
  }
  long write(const char* data, size_t size) {
    return tls ? SSL_write(tls, data, static_cast<int>(size)) : ::send(socket, data, size, MSG_NOSIGNAL);
  }
};

size_t content_length(const std::string& head) {
  const size_t at = head.find("Content-Length: ");
  return at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
}

}  // namespace

std::string http_response(const std::string& body, int status, const std::string& more_headers) {
  return "HTTP/1.1 " + std::to_string(status) +
         " Said\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         more_headers + "\r\n" + body;
}

HttpServer::HttpServer(Handler handler, const std::string& tls_host) : handler_(std::move(handler)) {
  if (!tls_host.empty()) make_certificate(tls_host);
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 64) != 0 || ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("cannot listen on 127.0.0.1");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { serve(); });
}

HttpServer::~HttpServer() {
  closing_ = true;
  acceptor_.join();
  ::close(listener_);
  for (std::thread& thread : threads_) thread.join();
  if (tls_) SSL_CTX_free(static_cast<SSL_CTX*>(tls_));
}

std::string HttpServer::url(const std::string& host, const std::string& path) const {
  return (tls_ ? "https://" : "http://") + host + ":" + std::to_string(port_) + path;
}

void HttpServer::serve() {
  while (!closing_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (::poll(&waiting, 1, 20) != 1) continue;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    ++connections_;
    threads_.emplace_back([this, socket] { answer(socket); });
  }
}

void HttpServer::answer(int socket) {
  const timeval patience{10, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  Connection connection{socket, nullptr};
  if (tls_) {
    connection.tls = SSL_new(static_cast<SSL_CTX*>(tls_));
    SSL_set_fd(connection.tls, socket);
  }
  if (!tls_ || SSL_accept(connection.tls) == 1) {
    std::string received;
    std::vector<char> piece(65536);
    size_t end = std::string::npos;
    while (end == std::string::npos || received.size() < end + 4 + content_length(received.substr(0, end))) {
      const long count = connection.read(piece.data(), piece.size());
      if (count <= 0) break;
      received.append(piece.data(), static_cast<size_t>(count));
      end = received.find("\r\n\r\n");
    }
    if (end != std::string::npos) {
      const std::string bytes = handler_({received.substr(0, end), received.substr(end + 4)});
      for (size_t sent = 0; sent < bytes.size();) {
        const long count = connection.write(bytes.data() + sent, bytes.size() - sent);
        if (count <= 0) break;
        sent += static_cast<size_t>(count);
      }
    }
    if (connection.tls) SSL_shutdown(connection.tls);
  }
  if (connection.tls) SSL_free(connection.tls);
  ::close(socket);
}

void HttpServer::make_certificate(const std::string& host) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(host.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_set_pubkey(certificate, key);
  X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, ("DNS:" + host).c_str());
  X509_add_ext(certificate, names, -1);
  X509_EXTENSION_free(names);
  X509_sign(certificate, key, EVP_sha256());
  if (FILE* file = std::fopen(certificate_file().c_str(), "w")) {
    PEM_write_X509(file, certificate);
    std::fclose(file);
  }
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  SSL_CTX_use_certificate(context, certificate);
  SSL_CTX_use_PrivateKey(context, key);
  X509_free(certificate);
  EVP_PKEY_free(key);
  tls_ = context;
}

}  // namespace hone::test
