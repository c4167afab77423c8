#include "tests/support/terminal.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>

#include "tests/support/support.h"

namespace hone::test {

Terminal::Terminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  const std::string binary = hone_binary().string();
  std::vector<char*> argv{const_cast<char*>(binary.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const winsize size{.ws_row = 50, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
  pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
  if (pid_ < 0) throw std::runtime_error("cannot make a pseudo-terminal");
  if (pid_ > 0) return;
  for (const std::string& entry : environment) ::putenv(const_cast<char*>(entry.c_str()));
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

Terminal::~Terminal() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(terminal_);
}

void Terminal::type(const std::string& text) const {
  if (::write(terminal_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error("cannot type");
}

bool Terminal::read_some(double seconds) {
  pollfd ready{terminal_, POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(seconds * 1000)) <= 0) return true;
  std::array<char, 4096> piece;
  const ssize_t count = ::read(terminal_, piece.data(), piece.size());
  if (count > 0) screen_.append(piece.data(), static_cast<size_t>(count));
  return count > 0;  // an Error at the end: the program has closed the terminal
}

bool Terminal::shows(const std::string& text, double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (bool open = true;;) {
    const size_t found = screen_.find(text, seen_);
    if (found != std::string::npos) {
      seen_ = found + text.size();
      return true;
    }
    if (!open || std::chrono::steady_clock::now() >= deadline) return false;
    open = read_some(0.05);
  }
}

bool Terminal::type_until(const std::string& text, const std::string& shown) {
  for (int tries = 0; tries < 20; ++tries) {
    type(text);
    if (shows(shown, 3)) return true;
  }
  return false;
}

int Terminal::leave() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  [[maybe_unused]] const ssize_t first = ::write(terminal_, "\x04", 1);  // the program may have ended already
  for (auto next = std::chrono::steady_clock::now() + std::chrono::seconds(2); read_some(0.1);) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next) continue;
    if (now >= deadline) ::kill(pid_, SIGKILL);
    [[maybe_unused]] const ssize_t typed = ::write(terminal_, "\x04", 1);
    next = now + std::chrono::seconds(2);
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace hone::test
