#pragma once
// Runs the hone binary as a user would.
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hone::test {

struct Finished {
  int code = -1;  // exit code; 128 + the signal if one ended it
  std::string out, err;
};

// A hone process with its arguments; environment entries ("NAME=value") are added to the test's own. launcher: a
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
  // Whether it ends within so many seconds; if so, wait() has what it left.
  bool ends_within(double seconds) const;
  // What it has written to standard error up to now.
  std::string err() const;
  // The port that its log says it serves at ("... at http://ADDRESS:PORT"). An exception if it does not within so many
  // seconds.
  int64_t port(double seconds = 60) const;
  // Bytes of memory that it holds.
  int64_t resident_bytes() const;
  // An entry of /proc/PID/status in bytes: VmHWM (the most memory that it ever held), VmPeak (the most addresses).
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
