#include "core/io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/io/json.h"

namespace hone {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// 0 if there is no such process.
int64_t start_of(int64_t pid) {
  std::ifstream in(concat("/proc/", pid, "/stat"));
  std::string text;
  if (!std::getline(in, text)) return 0;
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  constexpr int before_start = 19;  // state is the 3rd field, starttime the 22nd
  for (int i = 0; i < before_start; ++i) fields >> skipped;
  int64_t start = 0;
  return fields >> start ? start : 0;
}

std::string read_note(int descriptor) {
  std::string text(4096, '\0');
  const ssize_t count = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

std::string words_for(const LockHolder& holder) {
  return holder.host.empty() ? "another process" : concat("process ", holder.pid, " on ", holder.host);
}

}  // namespace

LockHolder LockHolder::self() { return {.host = host_name(), .pid = ::getpid(), .started = start_of(::getpid())}; }

LockHolder LockHolder::parse(const std::string& text) {
  try {
    const Json json = parse_json(text, "lock");
    return {
        .host = json.at("host").as_string(), .pid = json.at("pid").as_int(), .started = json.at("started").as_int()};
  } catch (const Error&) {
    return {};  // empty, or not yet whole
  }
}

std::string LockHolder::text() const {
  return Json(JsonObject{{"host", host}, {"pid", pid}, {"started", started}}).dump() + "\n";
}

bool LockHolder::is_alive() const { return host == host_name() && started > 0 && start_of(pid) == started; }

FolderLock::FolderLock(const std::filesystem::path& folder) : file_(folder / "lock") {
  descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0644);
  HONE_CHECK(descriptor_ >= 0, file_.string(), ": cannot make the lock: ", std::strerror(errno));
  // A child that a killed holder was just starting keeps the lock until its exec(). So retry for a moment.
  constexpr int attempts = 20;
  constexpr std::chrono::milliseconds pause(50);
  bool locked = false, is_held = false;
  for (int i = 0; i < attempts && !locked && (i == 0 || is_held); ++i) {
    if (i > 0) std::this_thread::sleep_for(pause);
    locked = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
    is_held = !locked && errno == EWOULDBLOCK;
  }
  const LockHolder holder = LockHolder::parse(read_note(descriptor_)), self = LockHolder::self();
  const bool is_elsewhere = !holder.host.empty() && holder.host != self.host;
  if (is_held || (!locked && (holder.is_alive() || is_elsewhere))) {
    ::close(descriptor_);
    fail(folder.string(), ": ", words_for(holder), " is writing this folder; wait until it ends, or end it",
         is_held ? ""
                 : concat(" (this file system has no locks: remove ", file_.string(), " if that process has ended)"));
  }
  if (is_elsewhere)
    log::warning(folder.string(), ": ", words_for(holder),
                 " did not leave this folder in order; make sure that it has ended if this file system does not share ",
                 "its locks between hosts");
  const std::string note = self.text();
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, note.data(), note.size(), 0) != static_cast<ssize_t>(note.size())) {
    const std::string why = std::strerror(errno);
    ::close(descriptor_);
    fail(file_.string(), ": cannot write: ", why);
  }
}

// Empties the file but keeps it: a process that has opened it would otherwise lock a removed file.
FolderLock::~FolderLock() {
  [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, 0);
  ::close(descriptor_);
}

}  // namespace hone
