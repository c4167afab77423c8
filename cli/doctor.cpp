// hone doctor: checks devices, data, sandbox guards and tasks of this machine.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "cli/command.h"
#include "core/base/parallel_for.h"
#include "core/device/device.h"
#include "eval/task.h"
#include "rewards/sandbox/guards.h"

namespace hone {
namespace {

class DoctorCommand : public Command {
 public:
  std::string summary() const override {
    return "check this machine: devices, data, sandbox guards, and what to do about what is missing";
  }
  std::string example() const override { return "hone doctor"; }
  void arguments(Arguments&) override {}
  int run() override {
    print_check(true, "processor", processor(), "");
    print_check(true, "threads", concat(num_threads(), " of ", std::thread::hardware_concurrency()),
                "set HONE_NUM_THREADS, or threads = N in a recipe");
    for (const std::string& name : devices().names()) {
      if (name == "meta") continue;
      try {
        const std::unique_ptr<Device> device = devices().at(name)(0);
        print_check(true, "device " + name,
                    concat(device->description(), ", ", device->free_bytes() >> 20, " MiB free"), "");
      } catch (const Error& error) {
        print_check(false, "device " + name, error.what(),
                    "install a working NVIDIA driver; nvidia-smi must list the GPU");
      }
    }
    if (!devices().find("cuda"))
      print_check(false, "device cuda", "this binary was built without CUDA",
                  "run ./dev build --preset cuda on a machine with nvcc");
    const char* data = std::getenv("HONE_DATA");
    print_check(data != nullptr, "HONE_DATA", data ? data : "not set",
                "export HONE_DATA=FOLDER; recipes on real data read their files from it");
    const size_t tasks = known_eval_tasks().size();
    const GuardReport& guards = available_guards();
    for (size_t i = 0; i < guard_kinds().size(); ++i) {
      const GuardKind& kind = guard_kinds()[i];
      print_check(guards.guards.*kind.flag, concat("guard ", kind.name),
                  guards.guards.*kind.flag ? kind.does : concat(kind.does, ": ", guards.why_not[i]),
                  "the reward `code` needs this guard, unless sandbox.allow_missing lists it: docs/explain/sandbox.md");
    }
    print_check(tasks > 0, "tasks", concat(tasks, " task files"),
                "run hone from the source tree, or give the path of a task's TOML file");
    return 0;
  }

 private:
  static void print_check(bool good, const std::string& what, const std::string& found, const std::string& advice) {
    std::printf("%-4s %-14s %s\n", good ? "ok" : "--", what.c_str(), found.c_str());
    if (!good && !advice.empty()) std::printf("     %-14s -> %s\n", "", advice.c_str());
  }
  static std::string processor() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
      if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    return "unknown";
  }
};

[[maybe_unused]] const bool added =
    commands().add("doctor", [] { return std::unique_ptr<Command>(new DoctorCommand); });

}  // namespace
}  // namespace hone
