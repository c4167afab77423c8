#pragma once
// Log lines for people (spdlog behind this header) and progress of long steps. Thread-safe.
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/check.h"

namespace hone::log {

enum class Level { debug, info, warning, error };
void set_level(Level level);  // default info, or HONE_LOG=debug|info|warning|error
// Also append every line to a file (a run folder's hone.log).
void also_to_file(const std::string& path);
void write(Level level, std::string_view line);  // to standard error

template <class... Words>
void info(const Words&... words) {
  write(Level::info, concat(words...));
}
template <class... Words>
void warning(const Words&... words) {
  write(Level::warning, concat(words...));
}
template <class... Words>
void error(const Words&... words) {
  write(Level::error, concat(words...));
}
template <class... Words>
void debug(const Words&... words) {
  write(Level::debug, concat(words...));
}

// Progress of a long task: a bar with rate and ETA on a terminal, else a plain line every few seconds. The destructor
// prints the last state. total = 0 means unknown. update() is cheap.
class Progress {
 public:
  Progress(std::string what, int64_t total, std::string unit);
  ~Progress();
  // done: 0 to total. note: a few words shown after the numbers ("loss 3.21").
  void update(int64_t done, std::string_view note = {});

 private:
  void print(std::string_view note, bool last);
  std::string what_, unit_, note_;
  int64_t total_, done_ = 0;
  std::chrono::steady_clock::time_point start_, printed_;
  bool terminal_;
};

}  // namespace hone::log
