#include "rewards/sandbox/process_tree.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace hone {

namespace {

namespace fs = std::filesystem;

// Reads a file of /proc; "" if the process is gone.
std::string read_proc(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  std::string out;
  char buffer[4096];
  for (ssize_t got; (got = ::read(file, buffer, sizeof(buffer))) > 0;) out.append(buffer, static_cast<size_t>(got));
  ::close(file);
  return out;
}

// Adds the children of one thread. ids: process ids separated by spaces.
void add_children(const std::string& ids, std::vector<pid_t>& out) {
  char* end = nullptr;
  for (const char* at = ids.c_str();; at = end) {
    const long child = std::strtol(at, &end, 10);
    if (end == at) return;
    out.push_back(static_cast<pid_t>(child));
  }
}

}  // namespace

int64_t tree_memory(pid_t root) {
  static const int64_t page = ::sysconf(_SC_PAGESIZE);
  constexpr size_t most = 4096;  // maximum number of processes read
  int64_t sum = 0;
  std::vector<pid_t> found{root};
  for (size_t i = 0; i < found.size() && i < most; ++i) {
    const fs::path process = "/proc/" + std::to_string(found[i]);
    long long size = 0, resident = 0, shared = 0;
    if (std::sscanf(read_proc(process / "statm").c_str(), "%lld %lld %lld", &size, &resident, &shared) == 3)
      sum += (resident - shared) * page;
    std::error_code gone;
    for (fs::directory_iterator thread(process / "task", gone), end; !gone && thread != end; thread.increment(gone))
      add_children(read_proc(thread->path() / "children"), found);
  }
  return sum;
}

}  // namespace hone
