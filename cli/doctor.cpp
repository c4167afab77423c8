// hone doctor: checks devices, libraries, data, sandbox guards and tasks of this machine.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "cli/command.h"
#include "core/base/build_info.h"
#include "core/base/parallel_for.h"
#include "core/device/cuda_facts.h"
#include "core/device/device.h"
#include "core/device/device_library.h"
#include "core/io/json.h"
#include "eval/task.h"
#include "kernels/cuda/body_table.h"
#include "rewards/sandbox/guards.h"

namespace hone {
namespace {

// One line of the output. facts: figures that only the JSON output has.
struct DoctorCheck {
  bool good = false;
  std::string what = {}, found = {}, advice = {};  // advice: what to do if it is not good
  JsonObject facts = {};
};

std::string mebibytes(size_t bytes) { return concat(bytes >> 20, " MiB"); }

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

// What only a CUDA context knows of a GPU.
struct OpenedGpu {
  size_t free_bytes = 0;
  std::string bodies = {};  // which kernel bodies it runs
};
OpenedGpu open_gpu(int index) {
  const std::unique_ptr<Device> device = devices().at("cuda")(index);
  const size_t free = device->free_bytes();  // makes the GPU the current device, which device_limits() is about
  return {free, bodies_text(device_limits(), cuda_bodies())};
}

DoctorCheck check_gpu(const CudaFacts& facts, int index) {
  const GpuFacts& gpu = facts.gpus[static_cast<size_t>(index)];
  DoctorCheck out{.what = concat("cuda:", index)};
  std::string problem = gpu_problem(facts, index);
  OpenedGpu opened;
  if (problem.empty()) {
    try {
      opened = open_gpu(index);
    } catch (const Error& error) {  // reported as this GPU's line
      problem = error.what();
    }
  }
  out.good = problem.empty();
  out.facts = {{"name", gpu.name},
               {"capability", gpu.capability()},
               {"sms", gpu.num_sms},
               {"total_bytes", gpu.total_bytes},
               {"free_bytes", opened.free_bytes},
               {"block_bytes", gpu.block_bytes},
               {"l2_bytes", gpu.l2_bytes}};
  if (!out.good) {
    out.found = problem;
    return out;
  }
  const std::string lost = lost_on(gpu);
  out.found = concat(gpu.name, ", capability ", gpu.capability(), ", ", gpu.num_sms, " SMs, ",
                     mebibytes(opened.free_bytes), " free of ", mebibytes(gpu.total_bytes), ", runs ", opened.bodies,
                     lost.empty() ? "" : concat("; without ", lost));
  out.facts.emplace_back("bodies", opened.bodies);
  out.facts.emplace_back("without", lost);
  return out;
}

void add_cuda(std::vector<DoctorCheck>& out) {
  const std::optional<CudaFacts> facts = find_cuda();
  if (!facts) {
    out.push_back({false, "cuda", "this binary was built without CUDA",
                   "on a machine with an NVIDIA GPU, install the package hone-cuda, or run ./dev build --preset cuda "
                   "where nvcc is"});
    return;
  }
  const std::string problem = cuda_problem(*facts);
  out.push_back({problem.empty(),
                 "cuda",
                 problem.empty() ? concat("driver ", facts->driver, " for CUDA ",
                                          cuda_version_text(facts->driver_version), ", built with CUDA ",
                                          cuda_version_text(facts->runtime_version), " for ", facts->architectures)
                                 : problem,
                 "everything else works on the CPU; device = auto uses it",
                 {{"driver", facts->driver},
                  {"driver_cuda", cuda_version_text(facts->driver_version)},
                  {"runtime_cuda", cuda_version_text(facts->runtime_version)},
                  {"architectures", facts->architectures}}});
  for (size_t i = 0; i < facts->gpus.size(); ++i) out.push_back(check_gpu(*facts, static_cast<int>(i)));
}

void add_libraries(std::vector<DoctorCheck>& out) {
  for (const std::string& name : device_libraries().names()) {
    const DeviceLibrary& library = device_libraries().at(name);
    try {
      out.push_back({true, name, concat(library.load(), ", for ", library.used_for)});
    } catch (const Error& error) {  // reported as this library's line
      out.push_back({false, name, error.what()});
    }
  }
}

void add_guards(std::vector<DoctorCheck>& out) {
  const GuardReport& guards = available_guards();
  for (size_t i = 0; i < guard_kinds().size(); ++i) {
    const GuardKind& kind = guard_kinds()[i];
    const bool works = guards.guards.*kind.flag;
    out.push_back({works, concat("guard ", kind.name), works ? kind.does : concat(kind.does, ": ", guards.why_not[i]),
                   "the reward `code` needs this guard, unless sandbox.allow_missing lists it: "
                   "docs/explain/sandbox.md"});
  }
}

std::vector<DoctorCheck> check_machine() {
  std::vector<DoctorCheck> out;
  out.push_back({true, "hone", concat(version_text(), ", ", build_text())});
  out.push_back({true, "processor", processor()});
  out.push_back({true, "threads", concat(num_threads(), " of ", std::thread::hardware_concurrency())});
  const std::unique_ptr<Device> cpu = devices().at("cpu")(0);
  out.push_back({true, "cpu", concat(cpu->description(), ", ", mebibytes(cpu->free_bytes()), " free")});
  add_cuda(out);
  add_libraries(out);
  const char* data = std::getenv("HONE_DATA");
  out.push_back({data != nullptr, "HONE_DATA", data ? data : "not set",
                 "export HONE_DATA=FOLDER; recipes on real data read their files from it"});
  add_guards(out);
  const size_t tasks = known_eval_tasks().size();
  out.push_back({tasks > 0, "tasks", concat(tasks, " task files"),
                 "run hone from the source tree, or give the path of a task's TOML file"});
  return out;
}

class DoctorCommand : public Command {
 public:
  std::string summary() const override {
    return "check this machine: devices, libraries, data, sandbox guards, and what to do about what is missing";
  }
  std::string example() const override { return "hone doctor\n  hone doctor --json"; }
  void arguments(Arguments& a) override {
    a.flag("json", json_, "print a JSON object for each line: check, ok, found, advice, and figures of GPUs");
  }
  int run() override {
    cuda_bodies();  // refuses an unknown HONE_CUDA_BODIES, also without a GPU
    for (const DoctorCheck& check : check_machine()) json_ ? print_json(check) : print_text(check);
    return 0;
  }

 private:
  static void print_text(const DoctorCheck& check) {
    std::printf("%-4s %-14s %s\n", check.good ? "ok" : "--", check.what.c_str(), check.found.c_str());
    if (!check.good && !check.advice.empty()) std::printf("     %-14s -> %s\n", "", check.advice.c_str());
  }
  static void print_json(const DoctorCheck& check) {
    JsonObject row{{"check", check.what}, {"ok", check.good}, {"found", check.found}};
    if (!check.good && !check.advice.empty()) row.emplace_back("advice", check.advice);
    for (const auto& [name, value] : check.facts) row.emplace_back(name, value);
    std::printf("%s\n", Json(row).dump().c_str());
  }

  bool json_ = false;
};

[[maybe_unused]] const bool added =
    commands().add("doctor", [] { return std::unique_ptr<Command>(new DoctorCommand); });

}  // namespace
}  // namespace hone
