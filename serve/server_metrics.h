#pragma once
// ServerMetrics: the server's metrics in Prometheus' text format 0.0.4. Any thread.
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "rollout/async_engine.h"

namespace hone {

class ServerMetrics {
 public:
  // Counts a response, or a client that disconnected (status 499), `seconds` after its request came.
  void record_response(const std::string& path, int status, double seconds);
  void record_first_token(double seconds);
  std::string text(const AsyncEngine::State& state, int64_t max_pending_completions, int64_t connections) const;

 private:
  struct Histogram {
    static constexpr std::array<double, 12> bounds{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30, 120};
    std::array<int64_t, bounds.size() + 1> counts{};
    double sum = 0;
    void add(double value);
  };
  static void write(std::string& out, const std::string& name, const char* help, const Histogram& histogram);
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> responses_;
  Histogram seconds_, first_token_;
};

}  // namespace hone
