#include "run/plan/device_rates.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/base/suggest.h"
#include "train/peak_flops.h"

namespace hone {
namespace {

// From the manufacturer's data sheets: GB/s of memory, GB/s of the link in one direction. A name that contains another
// one stands before it.
struct KnownGpu {
  std::string_view name;
  double memory, link;
};
constexpr std::array known{
    KnownGpu{"GB200", 8000, 900},   KnownGpu{"B200", 8000, 900},     KnownGpu{"GH200", 4000, 450},
    KnownGpu{"H200", 4800, 450},    KnownGpu{"H100 PCIe", 2000, 64}, KnownGpu{"H100 NVL", 3900, 300},
    KnownGpu{"H100", 3350, 450},    KnownGpu{"H800", 3350, 200},     KnownGpu{"H20", 4000, 450},
    KnownGpu{"A100", 2039, 300},    KnownGpu{"A800", 2039, 200},     KnownGpu{"A40", 696, 32},
    KnownGpu{"A30", 933, 32},       KnownGpu{"A10G", 600, 32},       KnownGpu{"A10", 600, 32},
    KnownGpu{"L40S", 864, 32},      KnownGpu{"L40", 864, 32},        KnownGpu{"L4", 300, 32},
    KnownGpu{"RTX 5090", 1792, 64}, KnownGpu{"RTX 4090", 1008, 32},  KnownGpu{"RTX 3090", 936, 32}};

// "rtx4090" of "RTX 4090".
std::string letters_of(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

Json DeviceRates::json() const {
  return JsonObject{{"source", source},
                    {"flops_per_second", flops},
                    {"memory_bytes_per_second", memory_bandwidth},
                    {"link_bytes_per_second", link_bandwidth}};
}

std::vector<std::string> known_gpus() {
  std::vector<std::string> out;
  for (const KnownGpu& gpu : known) out.emplace_back(gpu.name);
  std::ranges::sort(out);
  return out;
}

DeviceRates gpu_rates(std::string_view name) {
  constexpr double flops_share = 0.5, memory_share = 0.85, link_share = 0.67;
  const std::string wanted = letters_of(name);
  for (const KnownGpu& gpu : known)
    if (wanted.find(letters_of(gpu.name)) != std::string::npos)
      return {.source = concat("data sheet of ", gpu.name),
              .flops = flops_share * bf16_peak_flops(gpu.name),
              .memory_bandwidth = memory_share * gpu.memory * 1e9,
              .link_bandwidth = link_share * gpu.link * 1e9};
  fail("unknown GPU '", name, "'; known: ", join(known_gpus()));
}

DeviceRates measured_rates(const std::string& device, const MeasuredRates& rates, int64_t ranks) {
  const double sharing = static_cast<double>(std::max<int64_t>(1, ranks));
  // A copy inside a memory reads and writes each byte.
  return {.source = concat("measured on ", device),
          .flops = rates.flops / sharing,
          .memory_bandwidth = rates.memory / sharing,
          .link_bandwidth = rates.link > 0 ? rates.link : rates.memory / 2 / sharing};
}

}  // namespace hone
