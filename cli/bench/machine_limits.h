#pragma once
// What this machine can do at most, measured: the limits that speeds are compared with.
#include "kernels/op.h"

namespace hone {

// Of a CPU, all threads of the pool together: f32 fused multiply-adds a second, times two, all in registers; bytes a
// second read from a buffer larger than caches. Of a GPU: the vendor's product of bf16 matrices of 8192 x 8192; bytes
// read and written by a copy.
struct MachineLimits {
  double flops = 0, read_bandwidth = 0;
};
MachineLimits measure_limits(double seconds = 0.5);  // of the CPU
MachineLimits measure_limits(Context& context);

}  // namespace hone
