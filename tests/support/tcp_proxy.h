#pragma once
// A relay in front of a server on 127.0.0.1 that disturbs connections as networks do.
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace hone::test {

class TcpProxy {
 public:
  enum class Mode : uint8_t {
    pass,
    refuse,  // open and new connections are reset
    stall,   // no data moves, and no side gets an error
    garble,  // one bit of each piece of the server's data is flipped
  };
  explicit TcpProxy(int64_t target_port);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;
  int64_t port() const { return port_; }
  void set(Mode mode) { mode_ = mode; }
  void set_bytes_per_second(int64_t bytes) {
    bytes_per_second_ = bytes;
  }                                                      // bytes per second of all connections together; 0 = no limit
  void set_most_open(int count) { most_open_ = count; }  // more connections are reset
  int connections() const { return connections_; }       // number of connections made
  int most_asking() const { return most_asking_; }       // most connections with an unanswered request at one time

 private:
  void accept();
  void relay(int client);
  bool pass_on(int from, int to, bool garble);
  void take_time(int64_t bytes);

  const int64_t target_port_;
  int listener_ = -1;
  int64_t port_ = 0;
  std::atomic<Mode> mode_{Mode::pass};
  std::atomic<int64_t> bytes_per_second_{0};
  std::atomic<int> connections_{0}, open_{0}, most_open_{INT_MAX}, asking_{0}, most_asking_{0};
  std::mutex cable_;
  std::chrono::steady_clock::time_point cable_free_;
  std::atomic<bool> closing_{false};
  std::vector<std::thread> relays_;
  std::thread acceptor_;
};

}  // namespace hone::test
