#include "tests/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <stdexcept>

#include "tests/support/support.h"

namespace hone::test {

static std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Process::Process(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                 const std::string& input, const std::vector<std::string>& launcher) {
  folder_ = (std::filesystem::temp_directory_path() / "hone-process-XXXXXX").string();
  if (!::mkdtemp(folder_.data())) throw std::runtime_error("cannot make a temporary folder");
  std::ofstream(folder_ + "/in", std::ios::binary) << input;
  const std::string binary = hone_binary().string();
  std::vector<char*> argv;
  for (const std::string& word : launcher) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(const_cast<char*>(binary.c_str()));
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("cannot fork");
  if (pid_ > 0) return;
  const auto redirect = [&](const char* name, int flags, int to) {
    ::dup2(::open((folder_ + name).c_str(), flags, 0600), to);
  };
  redirect("/in", O_RDONLY, 0);
  redirect("/out", O_WRONLY | O_CREAT, 1);
  redirect("/err", O_WRONLY | O_CREAT, 2);
  for (const std::string& entry : environment) ::putenv(const_cast<char*>(entry.c_str()));
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

Process::~Process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Process::signal(int number) const { ::kill(pid_, number); }

Finished Process::wait() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), slurp(folder_ + "/out"),
          slurp(folder_ + "/err")};
}

bool Process::ends_within(double seconds) const {
  siginfo_t info{};
  return soon(
      [&] {
        return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
      },
      seconds);
}

std::string Process::err() const { return slurp(folder_ + "/err"); }

int64_t Process::port(double seconds) const {
  static const std::regex place("://[0-9.]+:([0-9]+)[ \n]");
  std::smatch found;
  std::string log;
  const auto serves = [&] { return log = err(), std::regex_search(log, found, place); };
  if (!soon([&] { return serves() || ends_within(0); }, seconds) || !serves())
    throw std::runtime_error("it does not serve: " + err());
  return std::stoll(found[1]);
}

int64_t Process::resident_bytes() const {
  std::ifstream in("/proc/" + std::to_string(pid_) + "/statm");
  int64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int64_t Process::status_bytes(const std::string& name) const {
  std::ifstream in("/proc/" + std::to_string(pid_) + "/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  return 0;
}

}  // namespace hone::test
