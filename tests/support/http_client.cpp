#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

namespace hone::test {

HttpClient::HttpClient(int64_t port, int receive_buffer, const std::string& host) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  if (socket_ < 0 || ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("cannot connect to " + host + " port " + std::to_string(port));
}

HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void HttpClient::close_half() { ::shutdown(socket_, SHUT_WR); }

void HttpClient::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

bool HttpClient::send(const std::string& bytes) const {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

std::string HttpClient::read(size_t most, double seconds) const {
  pollfd waiting{socket_, POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(seconds * 1000)) != 1) return {};
  std::vector<char> piece(most);
  const ssize_t count = ::recv(socket_, piece.data(), piece.size(), 0);
  return count > 0 ? std::string(piece.data(), static_cast<size_t>(count)) : std::string();
}

bool HttpClient::ends(double seconds) const {
  pollfd waiting{socket_, POLLIN, 0};
  char more = 0;
  return ::poll(&waiting, 1, static_cast<int>(seconds * 1000)) == 1 && ::recv(socket_, &more, 1, 0) <= 0;
}

bool HttpClient::read_until(const std::string& text) {
  while (received_.find(text) == std::string::npos) {
    const std::string more = read();
    if (more.empty()) return false;
    received_ += more;
  }
  return true;
}

HttpAnswer HttpClient::answer() {
  HttpAnswer out;
  if (!read_until("\r\n\r\n")) return out;
  const size_t head_end = received_.find("\r\n\r\n") + 4;
  const std::string head = received_.substr(0, head_end);
  received_.erase(0, head_end);
  for (size_t line = head.find("\r\n") + 2; line < head.size() - 2; line = head.find("\r\n", line) + 2) {
    const size_t colon = head.find(": ", line);
    std::string name = head.substr(line, colon - line);
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    out.headers[name] = head.substr(colon + 2, head.find("\r\n", line) - colon - 2);
  }
  const auto take = [&](size_t count) {
    while (received_.size() < count) {
      const std::string more = read();
      if (more.empty()) return false;
      received_ += more;
    }
    out.body += received_.substr(0, count);
    received_.erase(0, count);
    return true;
  };
  if (out.headers.count("content-length")) {
    if (!take(std::stoul(out.headers.at("content-length")))) return out;
  } else if (out.headers.count("transfer-encoding")) {
    for (size_t size = 1; size > 0;) {
      if (!read_until("\r\n")) return out;
      size = std::stoul(received_, nullptr, 16);
      received_.erase(0, received_.find("\r\n") + 2);
      const size_t before = out.body.size();
      if (!take(size + 2)) return out;
      out.body.resize(before + size);
    }
  } else {
    out.body.swap(received_);
    for (std::string more = read(); !more.empty(); more = read()) out.body += more;
  }
  out.status = std::stoi(head.substr(9, 3));
  return out;
}

std::string post_request(const std::string& path, const std::string& body, const std::string& more_headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + more_headers + "\r\n" + body;
}

HttpAnswer HttpClient::post(const std::string& path, const std::string& body, const std::string& more_headers) {
  send(post_request(path, body, more_headers));
  return answer();
}

HttpAnswer HttpClient::get(const std::string& path, const std::string& more_headers) {
  send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more_headers + "\r\n");
  return answer();
}

}  // namespace hone::test
