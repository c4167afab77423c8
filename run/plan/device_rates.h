#pragma once
// Rates of a device that the times of a plan are computed with: measured on this machine, or a GPU's data sheet.
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace hone {

// Per second, of one rank, as a run is expected to reach them.
struct DeviceRates {
  std::string source;           // "measured on AMD EPYC", "data sheet of H200"
  double flops = 0;             // of training passes
  double memory_bandwidth = 0;  // bytes that the optimizer reads and writes
  double link_bandwidth = 0;    // bytes that a rank receives while it sends as many
  Json json() const;
};

// Names of gpu_rates(): "A100", "RTX 4090", ...
std::vector<std::string> known_gpus();
// 50% of a GPU's bf16 FLOP/s, 85% of its memory bandwidth, 67% of its link in one direction (NVLink where the GPU has
// it, else PCIe). Upper and lower case, spaces and hyphens do not matter, and the name may have more words: "NVIDIA
// H200". Throws Error for an unknown name.
DeviceRates gpu_rates(std::string_view name);
// Measured on a device that `ranks` ranks share. link 0: memory is what connects them.
struct MeasuredRates {
  double flops = 0, memory = 0, link = 0;
};
DeviceRates measured_rates(const std::string& device, const MeasuredRates& rates, int64_t ranks);

// Shares of the measured peaks that training reaches: large products reach more, norms and attention less.
inline constexpr double cpu_flops_share = 0.4, gpu_flops_share = 0.6;

}  // namespace hone
