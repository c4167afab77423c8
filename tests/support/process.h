#pragma once
// Runs the hone binary as a user does.
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hone::test {

struct Finished {
  int code = -1;  // exit code; 128 + signal number if a signal ended it
  std::string out, err;
};

// A hone process with its arguments. environment: entries "NAME=value" added to the test's environment. launcher: a
// command that starts another one, with its arguments (`ip netns exec NAME`).
class Process {
 public:
  explicit Process(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {},
                   const std::string& input = "", const std::vector<std::string>& launcher = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void signal(int number) const;
  Finished wait();
  // Returns true if the process ends within `seconds`; wait() then returns its result.
  bool ends_within(double seconds) const;
  // Returns its standard error so far.
  std::string err() const;
  // Returns the port that its log names ("... at http://ADDRESS:PORT"). Throws an exception after `seconds`.
  int64_t port(double seconds = 60) const;
  // Returns its resident memory in bytes.
  int64_t resident_bytes() const;
  // Returns an entry of /proc/PID/status in bytes: VmHWM (peak resident memory), VmPeak (peak address space).
  int64_t status_bytes(const std::string& name) const;

 private:
  pid_t pid_ = -1;
  std::string folder_;
};

inline Finished run_hone(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {},
                         const std::string& input = "") {
  return Process(arguments, environment, input).wait();
}

}  // namespace hone::test
