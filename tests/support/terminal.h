#pragma once
// Runs the hone binary in a pseudo-terminal, as a person does.
#include <sys/types.h>

#include <string>
#include <vector>

namespace hone::test {

class Terminal {
 public:
  // environment: entries "NAME=value" added to the test's environment.
  Terminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Types text: "\n" is Enter, "\x03" Ctrl-C, "\x04" Ctrl-D.
  void type(const std::string& text) const;
  // Waits until `text` is on the screen after what an earlier call found. Returns false after `seconds` or at the end.
  bool shows(const std::string& text, double seconds = 60);
  // Types `text` until `shown` is on the screen, several times if need be: Ctrl-C drops what was typed before it.
  bool type_until(const std::string& text, const std::string& shown);
  // Everything that was written to the terminal, with its control sequences.
  const std::string& screen() const { return screen_; }
  // Types Ctrl-D until the program ends and returns its exit code; 128 + signal number if a signal ended it. A program
  // that goes on for a minute is killed.
  int leave();

 private:
  bool read_some(double seconds);
  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string screen_;
  size_t seen_ = 0;  // end of the last text that shows() found
};

}  // namespace hone::test
