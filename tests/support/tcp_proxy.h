#pragma once
// A relay in front of a server on 127.0.0.1, which does to its connections what networks do.
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
    refuse,  // what is open is reset, and so is what comes
    stall,   // nothing goes on, and nobody is told
    garble,  // a bit of each piece of the server's bytes is turned over
  };
  explicit TcpProxy(int64_t target_port);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;
  int64_t port() const { return port_; }
  void set(Mode mode) { mode_ = mode; }
  void set_bytes_per_second(int64_t bytes) {
    bytes_per_second_ = bytes;
  }                                                      // of all connections together; 0 = as fast as it goes
  void set_most_open(int count) { most_open_ = count; }  // further connections are reset
  int connections() const { return connections_; }       // that were made
  int most_asking() const { return most_asking_; }  // that at the same time had sent something and had no answer yet

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
