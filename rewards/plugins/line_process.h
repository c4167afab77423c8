#pragma once
// LineProcess: a child process that answers each line with one line. It leads its own process group, and no process of
// the group outlives the object. One thread may use it at a time.
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/check.h"

namespace hone {

class LineProcess {
 public:
  using Clock = std::chrono::steady_clock;

  // Starts the program (found in PATH). on_error receives each line of its standard error, cut to 400 bytes.
  LineProcess(const std::vector<std::string>& command, std::function<void(std::string_view line)> on_error);
  // Closes the process's input, waits up to half a second for it to exit, and kills the rest of its group.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // Writes the line and returns the answering line, both without their newline. It reads standard output and standard
  // error while it writes, so that a full pipe blocks neither side. It throws an Error if the process ends, closes its
  // input, misses the deadline, answers with more than max_answer bytes, or writes without a request. The process group
  // is then dead and the object unusable.
  std::string exchange(std::string_view line, Clock::time_point deadline);

  static constexpr size_t max_answer = size_t{64} << 20;

 private:
  [[noreturn]] void give_up(const std::string& why);
  [[noreturn]] void give_up_or_say_end(const std::string& why);  // reports the exit status if the process ended
  void write_some(std::string_view& rest);
  bool read_output();
  void read_errors();
  void kill_group();

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;  // our ends of its standard streams; -1 after closing
  std::string output_, error_line_;
  std::function<void(std::string_view)> on_error_;
  std::string ending_;  // exit status in words after it ended
};

}  // namespace hone
