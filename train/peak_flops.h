#pragma once
// The peak arithmetic rate of a device, which mfu is a share of.
#include <string_view>

#include "core/device/device.h"

namespace hone {

// Dense bf16 FLOP/s of a GPU by its name, from the manufacturer's data sheet; 0 if the table lacks it.
double bf16_peak_flops(std::string_view device_name);

// FLOP/s of a device for weights of this dtype. 0 = unknown: a CPU, a GPU that the table lacks, or f32 weights, whose
// rate depends on the numerics. Then the recipe's peak_tflops is the only source.
double peak_flops(const Device& device, DType dtype);

}  // namespace hone
