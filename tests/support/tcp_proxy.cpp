#include "tests/support/tcp_proxy.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace hone::test {
namespace {

sockaddr_in loopback(int64_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(static_cast<uint16_t>(port));
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return out;
}

void reset(int socket) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(socket);
}

constexpr int moment = 20;  // milliseconds

}  // namespace

TcpProxy::TcpProxy(int64_t target_port)
    : target_port_(target_port), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in place = loopback(0);
  socklen_t size = sizeof place;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&place), size) != 0 || ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size) != 0)
    throw std::runtime_error("the proxy cannot listen");
  port_ = ntohs(place.sin_port);
  acceptor_ = std::thread([this] { accept(); });
}

TcpProxy::~TcpProxy() {
  closing_ = true;
  acceptor_.join();
  for (std::thread& one : relays_) one.join();
  ::close(listener_);
}

void TcpProxy::accept() {
  while (!closing_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (::poll(&waiting, 1, moment) != 1) continue;
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    ++connections_;
    relays_.emplace_back([this, client] { relay(client); });
  }
}

void TcpProxy::relay(int client) {
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in place = loopback(target_port_);
  const timeval patience{.tv_sec = 1, .tv_usec = 0};  // no send blocks forever
  for (const int end : {client, server}) ::setsockopt(end, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const bool has_place = ++open_ <= most_open_;
  bool asking = false;
  bool open = has_place && mode_ != Mode::refuse &&
              ::connect(server, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0;
  while (open && !closing_ && mode_ != Mode::refuse) {
    std::array<pollfd, 2> ends{{{client, POLLIN, 0}, {server, POLLIN, 0}}};
    if (mode_ == Mode::stall || ::poll(ends.data(), ends.size(), moment) <= 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    if (ends[0].revents) {
      open = pass_on(client, server, false);
      if (open && !std::exchange(asking, true)) {
        const int now = ++asking_;
        for (int most = most_asking_; most < now && !most_asking_.compare_exchange_weak(most, now);) {}
      }
    }
    if (open && ends[1].revents) {
      open = pass_on(server, client, mode_ == Mode::garble);
      if (std::exchange(asking, false)) --asking_;
    }
  }
  if (asking) --asking_;
  --open_;
  reset(server);
  if (!has_place || mode_ == Mode::refuse || closing_)
    reset(client);
  else
    ::close(client);
}

void TcpProxy::take_time(int64_t bytes) {
  const int64_t rate = bytes_per_second_;
  if (rate == 0) return;
  std::chrono::steady_clock::time_point until;
  {
    const std::lock_guard lock(cable_);
    until = cable_free_ =
        std::max(cable_free_, std::chrono::steady_clock::now()) + std::chrono::microseconds(1000000 * bytes / rate);
  }
  std::this_thread::sleep_until(until);
}

bool TcpProxy::pass_on(int from, int to, bool garble) {
  std::array<char, 16384> piece;
  const ssize_t count = ::recv(from, piece.data(), piece.size(), 0);
  if (count <= 0) return false;
  if (garble) piece[static_cast<size_t>(count) / 2] ^= 1;
  take_time(count);
  for (ssize_t sent = 0; sent < count;) {
    const ssize_t more = ::send(to, piece.data() + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
    if (more <= 0) return false;
    sent += more;
  }
  return true;
}

}  // namespace hone::test
