#include "rewards/plugins/line_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

extern char** environ;

namespace hone {
namespace {

struct PipePair {
  int ours = -1, theirs = -1;
};

// Both ends close on exec, so that no other child inherits them. Our end is non-blocking.
PipePair make_pipe(bool we_write) {
  std::array<int, 2> ends{};
  HONE_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "cannot make a pipe: ", std::strerror(errno));
  const PipePair out{ends[we_write ? 1 : 0], ends[we_write ? 0 : 1]};
  ::fcntl(out.ours, F_SETFL, O_NONBLOCK);
  return out;
}

// The child's pipes, its own process group, and default signal handling without blocked signals.
class SpawnSettings {
 public:
  SpawnSettings(int in, int out, int err) {
    ::posix_spawn_file_actions_init(&actions);
    for (const auto& [from, to] : {std::pair{in, 0}, {out, 1}, {err, 2}})
      ::posix_spawn_file_actions_adddup2(&actions, from, to);
    ::posix_spawnattr_init(&attributes);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
};

// Writes without SIGPIPE: a pipe without a reader gives EPIPE, whatever the process does with that signal.
ssize_t write_without_signal(int descriptor, const char* data, size_t size) {
  sigset_t pipe_signal, before;
  ::sigemptyset(&pipe_signal);
  ::sigaddset(&pipe_signal, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t written = ::write(descriptor, data, size);
  const int problem = errno;
  if (written < 0 && problem == EPIPE) {
    const timespec now{};
    ::sigtimedwait(&pipe_signal, nullptr, &now);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = problem;
  return written;
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status))
    return concat("it was ended by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")");
  return concat("it ended with exit code ", WEXITSTATUS(status));
}

// Returns true if the process ends within 200 ms. It is not reaped.
bool ends_soon(pid_t pid) {
  siginfo_t info{};
  for (int i = 0;
       i < 40 && ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
       ++i)
    ::usleep(5000);
  return info.si_pid != 0;
}

void close_end(int& descriptor) {
  if (descriptor >= 0) ::close(std::exchange(descriptor, -1));
}

}  // namespace

LineProcess::LineProcess(const std::vector<std::string>& command, std::function<void(std::string_view)> on_error)
    : on_error_(std::move(on_error)) {
  HONE_CHECK(!command.empty() && !command[0].empty(), "command is empty; it must name a program");
  PipePair in = make_pipe(true), out = make_pipe(false), err = make_pipe(false);
  in_ = in.ours;
  out_ = out.ours;
  err_ = err.ours;
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  SpawnSettings settings(in.theirs, out.theirs, err.theirs);
  const int problem =
      ::posix_spawnp(&pid_, arguments[0], &settings.actions, &settings.attributes, arguments.data(), environ);
  for (PipePair* pipe : {&in, &out, &err}) close_end(pipe->theirs);
  if (problem == 0) return;
  for (int* end : {&in_, &out_, &err_}) close_end(*end);
  fail(command[0], ": cannot be started: ", std::strerror(problem));
}

LineProcess::~LineProcess() {
  close_end(in_);
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(500);
  while (out_ >= 0 && Clock::now() < deadline) {
    pollfd waiting{out_, POLLIN, 0};
    ::poll(&waiting, 1, 20);
    read_errors();
    output_.clear();
    if (!read_output()) break;
  }
  kill_group();
}

void LineProcess::kill_group() {
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);  // before the leader is reaped, after which its id may be reused
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
    ending_ = describe_end(status);
    pid_ = -1;
  }
  if (err_ >= 0) read_errors();
  for (int* end : {&in_, &out_, &err_}) close_end(*end);
}

void LineProcess::give_up(const std::string& why) {
  kill_group();
  fail(why);
}

void LineProcess::give_up_or_say_end(const std::string& why) {
  const bool ended = ends_soon(pid_);
  kill_group();
  fail(ended ? ending_ : why);
}

// Returns false at the end of the output.
bool LineProcess::read_output() {
  std::array<char, 65536> piece;
  const ssize_t count = ::read(out_, piece.data(), piece.size());
  if (count > 0) output_.append(piece.data(), static_cast<size_t>(count));
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

void LineProcess::read_errors() {
  constexpr size_t longest = 400;
  std::array<char, 16384> piece;
  for (int i = 0; i < 64 && err_ >= 0; ++i) {
    const ssize_t count = ::read(err_, piece.data(), piece.size());
    if (count == 0) close_end(err_);
    if (count <= 0) break;
    for (const char c : std::string_view(piece.data(), static_cast<size_t>(count))) {
      if (c != '\n') {
        if (error_line_.size() < longest) error_line_ += c;
        continue;
      }
      on_error_(error_line_);
      error_line_.clear();
    }
  }
}

void LineProcess::write_some(std::string_view& rest) {
  const ssize_t written = write_without_signal(in_, rest.data(), rest.size());
  if (written >= 0) return rest.remove_prefix(static_cast<size_t>(written));
  if (errno == EAGAIN || errno == EINTR) return;
  give_up_or_say_end("it closed its input");
}

std::string LineProcess::exchange(std::string_view line, Clock::time_point deadline) {
  HONE_CHECK(pid_ > 0, "it is gone: ", ending_);
  const std::string request = std::string(line) + "\n";
  std::string_view rest = request;
  size_t searched = 0;  // of output_, for the newline
  for (bool sent = false;; sent = true) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) give_up("it did not answer in time");
    std::array<pollfd, 3> ends{pollfd{out_, POLLIN, 0}, pollfd{err_, POLLIN, 0},
                               pollfd{rest.empty() ? -1 : in_, POLLOUT, 0}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count() + 1;
    ::poll(ends.data(), ends.size(), sent ? static_cast<int>(std::min<int64_t>(left, 60000)) : 0);
    if (ends[1].revents) read_errors();
    if (ends[0].revents && !read_output()) give_up_or_say_end("it closed its output");
    if (!sent && !output_.empty()) give_up("it wrote without a request: " + output_.substr(0, 100));
    if (ends[2].revents) write_some(rest);
    const size_t end = output_.find('\n', searched);
    searched = output_.size();
    if (end == std::string::npos) {
      if (output_.size() > max_answer) give_up(concat("its answer is longer than ", max_answer, " bytes"));
      continue;
    }
    if (!rest.empty()) give_up("it answered before it had read the request: " + output_.substr(0, 100));
    if (end + 1 != output_.size()) give_up("it wrote more than one line: " + output_.substr(end + 1, 100));
    output_.pop_back();
    return std::exchange(output_, {});
  }
}

}  // namespace hone
