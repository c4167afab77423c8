#include "train/peak_flops.h"

#include <utility>

namespace hone {

// Figures without sparsity. A name that contains another one stands before it.
double bf16_peak_flops(std::string_view device_name) {
  constexpr std::pair<std::string_view, double> known[] = {
      {"GB200", 2500e12},   {"B200", 2250e12}, {"GH200", 989e12}, {"H200", 989e12},     {"H100 PCIe", 756e12},
      {"H100 NVL", 835e12}, {"H100", 989e12},  {"H800", 989e12},  {"H20", 148e12},      {"A100", 312e12},
      {"A800", 312e12},     {"A40", 150e12},   {"A30", 165e12},   {"A10G", 70e12},      {"A10", 125e12},
      {"L40S", 362e12},     {"L40", 181e12},   {"L4", 121e12},    {"RTX 5090", 210e12}, {"RTX 4090", 165e12},
      {"RTX 3090", 71e12}};
  for (const auto& [name, rate] : known)
    if (device_name.find(name) != std::string_view::npos) return rate;
  return 0;
}

double peak_flops(const Device& device, DType dtype) {
  return device.kind() == DeviceKind::cuda && dtype == DType::bf16 ? bf16_peak_flops(device.description()) : 0;
}

}  // namespace hone
