#pragma once
// LineProcess: a child process that answers a line with a line. It leads a process group of its own, and nothing of the
// group outlives it. One thread at a time.
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

  // Starts the program (found in PATH). on_error gets each line that it writes to standard error, at most 400 bytes of
  // it.
  LineProcess(const std::vector<std::string>& command, std::function<void(std::string_view line)> on_error);
  // Closes its input, gives it half a second to end by itself, and kills what is left of its group.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // Writes the line and returns the one that comes back, both without their newline. Reads while it writes, standard
  // error too, so that a full pipe stops neither side. An Error (it ended; it closed its input; no answer by the
  // deadline; an answer of more than max_answer bytes; output that nobody asked for) leaves nothing to go on with: the
  // group has been killed.
  std::string exchange(std::string_view line, Clock::time_point deadline);

  static constexpr size_t max_answer = size_t{64} << 20;

 private:
  [[noreturn]] void give_up(const std::string& why);
  [[noreturn]] void give_up_or_say_end(const std::string& why);  // how it ended, if it did
  void write_some(std::string_view& rest);
  bool read_output();
  void read_errors();
  void kill_group();

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;  // our ends of its standard input, output and error; -1 once closed
  std::string output_, error_line_;
  std::function<void(std::string_view)> on_error_;
  std::string ending_;  // how it ended, once it has
};

}  // namespace hone
