#include "core/device/cuda_facts.h"

#include <cctype>
#include <charconv>
#include <sstream>

#include "core/base/check.h"

namespace hone {
namespace {

// The first driver that runs programs of a CUDA major version (NVIDIA's table of minor version compatibility).
std::string min_driver(int runtime_version) {
  switch (runtime_version / 1000) {
    case 11:
      return "450";
    case 12:
      return "525";
    case 13:
      return "580";
    default:
      return "";
  }
}

std::string needed_driver(const CudaFacts& facts) {
  const std::string driver = min_driver(facts.runtime_version);
  return driver.empty() ? concat("a driver for CUDA ", facts.runtime_version / 1000)
                        : concat("NVIDIA driver ", driver, " or newer");
}

// A driver runs programs of its own CUDA major version, also of later minor versions.
bool is_too_old(const CudaFacts& facts) {
  return facts.driver_version > 0 && facts.driver_version / 1000 < facts.runtime_version / 1000;
}

std::string driver_name(const CudaFacts& facts) {
  return facts.driver.empty() ? "the NVIDIA driver" : concat("the NVIDIA driver ", facts.driver);
}

// One entry of CMAKE_CUDA_ARCHITECTURES: "80", "90a-real", "120-virtual".
bool entry_runs_on(std::string_view entry, int major, int minor) {
  int number = 0;
  const auto [rest, problem] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (problem != std::errc()) return true;  // native, all, all-major
  const std::string_view tail = entry.substr(static_cast<size_t>(rest - entry.data()));
  const int capability = major * 10 + minor;
  if (tail.starts_with("a")) return number == capability;
  if (tail.starts_with("f")) return number / 10 == major && number <= capability;
  const bool machine_code = tail != "-virtual", ptx = tail != "-real";
  return (machine_code && number / 10 == major && number <= capability) || (ptx && number <= capability);
}

}  // namespace

std::optional<CudaFacts> find_cuda() {
  if (!cuda_facts_source) return std::nullopt;
  return cuda_facts_source();
}

std::string cuda_version_text(int version) { return concat(version / 1000, ".", version % 1000 / 10); }

bool has_code_for(std::string_view architectures, int major, int minor) {
  std::istringstream list{std::string(architectures)};
  for (std::string entry; std::getline(list, entry, ',');)
    if (entry_runs_on(entry, major, minor)) return true;
  return architectures.empty();
}

std::string forced_ptx_advice(const char* forced) {
  const std::string_view value = forced ? forced : "";
  if (value.empty() || value == "0") return {};
  return concat(
      ": CUDA_FORCE_PTX_JIT is ", value,
      ", and CUDA's libraries have no PTX: unset it, and build hone with -DCMAKE_CUDA_ARCHITECTURES=80-virtual "
      "to run its kernels from PTX");
}

std::string driver_version_in(std::string_view text) {
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    const bool numeric = word.find_first_not_of("0123456789.") == std::string::npos;
    if (numeric && word.find('.') != std::string::npos && std::isdigit(static_cast<unsigned char>(word.front())))
      return word;
  }
  return {};
}

bool has_unusable_gpu(const CudaFacts& facts) {
  if (is_too_old(facts)) return true;
  return !facts.gpus.empty() && !gpu_problem(facts, 0).empty();
}

std::string cuda_problem(const CudaFacts& facts) {
  if (facts.driver_version == 0)
    return concat("this machine has no NVIDIA driver (libcuda.so.1 is missing): install ", needed_driver(facts),
                  "; a container needs the GPUs passed to it, with docker run --gpus all");
  if (is_too_old(facts))
    return concat(driver_name(facts), " supports CUDA ", cuda_version_text(facts.driver_version),
                  ", and this program was built with CUDA ", cuda_version_text(facts.runtime_version), ": install ",
                  needed_driver(facts), ", or build hone with CUDA ", facts.driver_version / 1000);
  if (!facts.gpus.empty()) return {};
  if (facts.visible_devices && facts.visible_devices->empty())
    return "CUDA_VISIBLE_DEVICES is empty, which hides every GPU: unset it, or list GPUs, such as 0 or 0,1";
  if (facts.visible_devices)
    return concat("CUDA_VISIBLE_DEVICES is '", *facts.visible_devices,
                  "', which names no GPU of this machine: unset it, or list GPUs as nvidia-smi numbers them");
  return concat(driver_name(facts), " finds no GPU", facts.error.empty() ? "" : " (" + facts.error + ")",
                ": nvidia-smi must list one");
}

std::string gpu_problem(const CudaFacts& facts, int index) {
  if (std::string problem = cuda_problem(facts); !problem.empty()) return problem;
  const auto count = static_cast<int>(facts.gpus.size());
  if (index < 0 || index >= count)
    return concat("cuda:", index, " does not exist: there ",
                  count == 1 ? "is 1 GPU, cuda:0" : concat("are ", count, " GPUs, cuda:0 to cuda:", count - 1),
                  facts.visible_devices ? concat(" (CUDA_VISIBLE_DEVICES is '", *facts.visible_devices, "')") : "");
  const GpuFacts& gpu = facts.gpus[static_cast<size_t>(index)];
  if (gpu.major < kMinCapabilityMajor)
    return concat("cuda:", index, " is a ", gpu.name, " of compute capability ", gpu.capability(),
                  ", and the kernels need ", kMinCapabilityMajor, ".0 or higher (Ampere and later)");
  if (!has_code_for(facts.architectures, gpu.major, gpu.minor))
    return concat("cuda:", index, " is a ", gpu.name, " of compute capability ", gpu.capability(),
                  ", and this program has code for ", facts.architectures,
                  " alone: build it for all with ./dev build --all-archs");
  return {};
}

std::string lost_on(const GpuFacts& gpu) {
  if (gpu.major == 9) return {};
  if (gpu.major > 9) return "wgmma";
  return concat("wgmma, TMA, clusters", gpu.major == 8 && gpu.minor < 9 ? ", fp8 conversion in hardware" : "");
}

}  // namespace hone
