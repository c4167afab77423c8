#pragma once
// Measured peak arithmetic rate and memory bandwidth of this machine: the limits that speeds are compared with.
#include "kernels/op.h"

namespace hone {

// CPU, with all threads of the pool: flops counts f32 fused multiply-adds in registers, two per multiply-add;
// read_bandwidth is measured on a buffer larger than the caches. GPU: flops is cuBLASLt's GEMM of 8192 x 8192 bf16
// matrices; read_bandwidth counts the bytes read and written by a copy. Both are per second.
struct MachineLimits {
  double flops = 0, read_bandwidth = 0;
};
MachineLimits measure_limits(double seconds = 0.5);  // measures the CPU
MachineLimits measure_limits(Context& context);

}  // namespace hone
