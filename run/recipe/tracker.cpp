#include "run/recipe/tracker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/format.h"
#include "core/base/log.h"
#include "core/io/file.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t piece_bytes = 65536;
constexpr int64_t max_log_bytes = 1 << 20;
constexpr auto term_patience = std::chrono::seconds(2), save_interval = std::chrono::seconds(2);

// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

struct Pipe {
  Descriptor read, write;
};

Pipe make_pipe() {
  int ends[2];
  HONE_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "tracker: cannot make a pipe: ", std::strerror(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Starts the program (found in PATH) as the leader of its own process group, so that Ctrl-C does not end it before it
// has the last rows. Returns its process id, or throws an Error.
pid_t start(const std::vector<std::string>& command, int in, int out) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int code = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  HONE_CHECK(code == 0, "cannot start ", command.front(), ": ", std::strerror(code));
  return pid;
}

std::string ending_text(int status) {
  if (WIFSIGNALED(status)) return concat("was ended by signal ", WTERMSIG(status));
  return concat("ended with exit code ", WEXITSTATUS(status));
}

// Returns a new id for the services that identify a run by one: 16 hexadecimal digits.
std::string new_id() {
  const auto now = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return format_text("%012llx%04x", static_cast<unsigned long long>(now >> 10 & 0xffffffffffff),
                     static_cast<unsigned>(::getpid()) & 0xffff);
}

}  // namespace

void TrackerConfig::fields(Fields& f) {
  f("command", command,
    "program and arguments of a process that gets the recipe (first line) and the rows of metrics.jsonl on its "
    "standard input; empty = none. A failure of it never stops the run");
  f("grace", grace, "seconds at the end of the run for the process to receive the last rows and exit");
  f.require("command", command.empty() || !command.front().empty(), "command[0], the program, is empty");
  f.require("grace", grace >= 0 && grace <= 86400, "grace must be in [0, 86400] seconds");
}

// The feeder thread owns everything but what the mutex and the atomics guard.
struct Tracker::Impl {
  Impl(const TrackerConfig& config, const fs::path& run_folder, const Json& about);
  ~Impl();

  void feed();
  bool fill();          // reads the next piece of metrics.jsonl; false if there is nothing new
  bool send();          // writes what the pipe accepts; false if the process has closed its input
  void drain_output();  // copies the process's output to its log
  bool has_exited();    // reaps the process
  bool exits_soon();
  bool pending() const { return piece_sent < piece.size(); }
  void wait_for_events(std::chrono::milliseconds most);
  void stop_process();  // after the last row
  void give_up(const std::string& why);
  void save(bool now);
  bool past_deadline() { return Clock::now() >= deadline.load(); }

  const TrackerConfig config;
  const fs::path folder, metrics;
  std::string id;
  pid_t pid = -1;
  std::optional<int> status;
  Descriptor in, out, wake;
  std::string piece;        // the first line, then whole rows of metrics.jsonl
  size_t piece_sent = 0;    // bytes of it that the process has accepted
  int64_t piece_begin = 0;  // its place in metrics.jsonl
  int64_t offset = 0;       // end of the rows that were read into pieces
  int64_t saved_offset = -1, log_bytes = 0;
  bool in_first_line = true;  // `piece` is the first line
  Clock::time_point saved_at = Clock::now();
  std::optional<FileWriter> log;

  std::mutex mutex;               // guards the next two
  int64_t rows_end = 0;           // 0: no row is there yet
  std::optional<int64_t> rewind;  // rows from here on are new
  std::atomic<bool> closing{false};
  std::atomic<Clock::time_point> deadline{Clock::time_point::max()};
  std::thread thread;
};

Tracker::Impl::Impl(const TrackerConfig& config_, const fs::path& run_folder, const Json& about)
    : config(config_), folder(run_folder), metrics(run_folder / "metrics.jsonl"), id(new_id()) {
  const fs::path state_file = folder / "tracker.json";
  const bool resumed = fs::exists(state_file);
  if (resumed) {
    const Json state = parse_json(read_file(state_file), state_file.string());
    id = state.at("id", state_file.string()).as_string("id");
    offset = std::max<int64_t>(0, state.at("sent_bytes", state_file.string()).as_int("sent_bytes"));
  }
  Json first = JsonObject{{"id", id}, {"folder", fs::absolute(folder).string()}, {"resumed", resumed}};
  for (const auto& [name, value] : about.as_object()) first.set(name, value);
  piece = first.dump() + "\n";
  log.emplace(folder / "tracker.log", FileWriter::Mode::append);
  Pipe input = make_pipe(), output = make_pipe();
  pid = start(config.command, input.read.get(), output.write.get());
  in = std::move(input.write);
  out = std::move(output.read);
  wake = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  for (const int fd : {in.get(), out.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  thread = std::thread([this] { feed(); });
}

Tracker::Impl::~Impl() {
  deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(config.grace));
  closing = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof one);
  if (thread.joinable()) thread.join();
}

void Tracker::Impl::feed() {
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);  // a write to a dead process returns EPIPE instead
  try {
    save(true);
    for (;;) {
      const bool last = closing;  // read before the file: no row comes after it
      drain_output();
      if (has_exited()) return in ? give_up(ending_text(*status)) : void();
      if ((!in || (!pending() && !fill())) && last) break;
      if (in && !send()) {
        if (exits_soon()) continue;
        give_up("closed its input");
        in.reset();
      }
      if (last && past_deadline()) {
        log::warning("tracker: ", config.command.front(),
                     " did not take all rows within tracker.grace = ", config.grace, " s; the rest is in ",
                     metrics.string());
        break;
      }
      save(false);
      wait_for_events(std::chrono::milliseconds(last ? 20 : 500));
    }
    save(true);
    in.reset();
    stop_process();
    if (status && *status != 0) log::warning("tracker: ", config.command.front(), " ", ending_text(*status));
  } catch (const std::exception& error) {  // the disk is full, say: the run must not end for its tracker
    give_up(error.what());
  }
}

bool Tracker::Impl::fill() {
  int64_t end = 0;
  {
    const std::lock_guard lock(mutex);
    end = rows_end;
    if (rewind) offset = std::min(offset, *rewind);
    rewind.reset();
  }
  if (offset >= end) return false;
  const Descriptor file(::open(metrics.c_str(), O_RDONLY | O_CLOEXEC));
  HONE_CHECK(file, metrics.string(), ": cannot read: ", std::strerror(errno));
  // A row may be longer than a piece: the end of the rows is the end of a line.
  std::string bytes(static_cast<size_t>(std::min<int64_t>(end - offset, piece_bytes)), '\0');
  for (;;) {
    const ssize_t count = ::pread(file.get(), bytes.data(), bytes.size(), offset);
    HONE_CHECK(count >= 0, metrics.string(), ": cannot read: ", std::strerror(errno));
    const size_t newline = std::string_view(bytes).substr(0, static_cast<size_t>(count)).rfind('\n');
    if (newline != std::string::npos) {
      piece.assign(bytes, 0, newline + 1);
      piece_sent = 0;
      piece_begin = offset;
      in_first_line = false;
      offset += static_cast<int64_t>(piece.size());
      return true;
    }
    if (static_cast<int64_t>(bytes.size()) >= end - offset) return false;
    bytes.resize(std::min<size_t>(bytes.size() * 2, static_cast<size_t>(end - offset)));
  }
}

bool Tracker::Impl::send() {
  while (pending()) {
    const ssize_t count = ::write(in.get(), piece.data() + piece_sent, piece.size() - piece_sent);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    piece_sent += static_cast<size_t>(count);
  }
  return true;
}

void Tracker::Impl::drain_output() {
  char bytes[4096];
  constexpr int max_reads = 64;  // a process may write faster than this thread reads
  for (int i = 0; out && i < max_reads; ++i) {
    const ssize_t count = ::read(out.get(), bytes, sizeof bytes);
    if (count == 0) out.reset();
    if (count <= 0) break;
    const int64_t room = max_log_bytes - log_bytes;
    if (room > 0) log->write({bytes, static_cast<size_t>(std::min<int64_t>(count, room))});
    if (room > 0 && count >= room) log->write("\n[output beyond 1 MiB is dropped]\n");
    log_bytes += count;
    log->flush();
  }
}

bool Tracker::Impl::has_exited() {
  int code = 0;
  if (!status && ::waitpid(pid, &code, WNOHANG) == pid) status = code;
  return status.has_value();
}

// A process that exits closes its input a moment before it can be reaped.
bool Tracker::Impl::exits_soon() {
  for (int i = 0; i < 20 && !has_exited(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return status.has_value();
}

void Tracker::Impl::wait_for_events(std::chrono::milliseconds most) {
  pollfd events[3] = {
      {wake.get(), POLLIN, 0}, {out ? out.get() : -1, POLLIN, 0}, {pending() && in ? in.get() : -1, POLLOUT, 0}};
  ::poll(events, 3, static_cast<int>(most.count()));
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t read = ::read(wake.get(), &count, sizeof count);
}

void Tracker::Impl::stop_process() {
  in.reset();
  bool warned = false;
  for (auto until = closing ? deadline.load() : Clock::now(); !has_exited();) {
    drain_output();
    wait_for_events(std::chrono::milliseconds(20));
    if (Clock::now() < until) continue;
    ::kill(-pid, warned ? SIGKILL : SIGTERM);
    if (!std::exchange(warned, true)) until = Clock::now() + term_patience;
  }
  drain_output();
  if (warned) ::kill(-pid, SIGKILL);  // processes that it has started
}

void Tracker::Impl::give_up(const std::string& why) {
  save(true);
  log::warning("tracker: ", config.command.front(), " ", why,
               "; the run goes on without it (its output: ", (folder / "tracker.log").string(),
               "). A resumed run starts it again and sends the rest");
}

// Saves the end of the last whole row that the pipe has accepted.
void Tracker::Impl::save(bool now) {
  const size_t newline = piece_sent == 0 ? std::string::npos : piece.rfind('\n', piece_sent - 1);
  const int64_t in_piece = in_first_line || newline == std::string::npos ? 0 : static_cast<int64_t>(newline) + 1;
  const int64_t sent = (in_first_line ? offset : piece_begin) + in_piece;
  if (sent == saved_offset || (!now && Clock::now() - saved_at < save_interval)) return;
  write_file_atomic(folder / "tracker.json", Json(JsonObject{{"id", id}, {"sent_bytes", sent}}).dump() + "\n");
  saved_offset = sent;
  saved_at = Clock::now();
}

Tracker::Tracker(const TrackerConfig& config, const fs::path& run_folder, const Json& about) {
  if (config.command.empty()) return;
  try {
    impl_ = std::make_unique<Impl>(config, run_folder, about);
  } catch (const Error& error) {
    log::warning("tracker: ", error.what(), "; the run goes on without it");
  }
}

Tracker::~Tracker() = default;

void Tracker::notify(int64_t begin) {
  if (!impl_) return;
  std::error_code missing;
  const auto size = fs::file_size(impl_->metrics, missing);
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->rewind = std::min(impl_->rewind.value_or(begin), begin);
    if (!missing) impl_->rows_end = static_cast<int64_t>(size);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(impl_->wake.get(), &one, sizeof one);
}

void Tracker::finish() { impl_.reset(); }

}  // namespace hone
