#pragma once
// Quantized GEMM for M <= 8 rows: y = (x . values^T) * scales, bf16 x, int8 or e4m3 values. Its speed is close to that
// of reading the values once, at one byte per weight. Only .cu and .cuh files include it.
//
// Use       decode passes of up to 8 rows (takes_few()).
// Tile      16 columns of y (rows of w) by 8 rows of x per thread block.
// Roles     up to 12 warps. A warp takes every warps-th K chunk of 512 and copies its own w and x (mma.sync).
// Pipeline  a ring of 4 (several chunks per warp) or 2 smem stages per warp; a stage is 256 elements along K: w 4 KB,
//           x M * 512 bytes (cp.async).
// Smem      warps * stages * (4 KB + M * 512 bytes) + chunks * 512 bytes of sums; at most what the device allows.
// Numerics  K chunks of gemm_cuda_chunk, each one f32 accumulator from zero, added in ascending order, then scaled: the
//           bits of the other bodies.
// PDL       triggers dependents at the start; fills the rings with w before griddep_wait(), then with x.
// Limits    M <= 8; rows of x and w 16-byte aligned; K > 0.
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/quant/gemm_quantized.h"
#include "kernels/quant/quant_format.cuh"

namespace hone::quantized {

constexpr int max_small_m = 8, strip = 16, few_depth = 256, few_warps = 12,
              chunk_size = static_cast<int>(gemm_cuda_chunk), chunk_stages = chunk_size / few_depth,
              w_stage_bytes = strip * few_depth;

struct FewShape {
  const uint8_t* values;
  const float* scales;
  const __nv_bfloat16* x;
  int64_t values_stride, x_stride;
  int M, N, K, chunks;
  __host__ __device__ int stage_bytes() const { return w_stage_bytes + M * few_depth * 2; }
};

__device__ inline uint32_t load_two_bytes(uint32_t from) {
  uint16_t out;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(out) : "r"(from) : "memory");
  return out;
}
// Loads a lane's part of 16 rows of w by 16 along K as an A operand of bf16. `row`: address of its row lane / 4 at
// these 16 bytes. `below`: distance of its row lane / 4 + 8.
template <class Format>
__device__ inline void load_left(uint32_t* a, uint32_t row, uint32_t below, uint32_t lane) {
  const uint32_t from = row + lane % 4 * 2;
  a[0] = Format::decode(load_two_bytes(from));
  a[1] = Format::decode(load_two_bytes(from + below));
  a[2] = Format::decode(load_two_bytes(from + 8));
  a[3] = Format::decode(load_two_bytes(from + below + 8));
}
__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rows of a stage are units of 16 bytes; unit u of row r lies at u ^ r % 8.
template <class Format, int Stages>
__global__ void __launch_bounds__(few_warps * 32) few_kernel(const FewShape shape, const GemmEpilogue epilogue) {
  using namespace hopper;
  extern __shared__ __align__(128) char shared[];
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32,
            first_row = static_cast<int>(blockIdx.x) * strip;
  const uint32_t lane = threadIdx.x % 32;
  const int stage_bytes = shape.stage_bytes();
  const uint32_t ring = shared_address(shared) + static_cast<uint32_t>(warp * Stages * stage_bytes);
  float* const sums =
      reinterpret_cast<float*>(shared + warps * Stages * stage_bytes);  // [chunks, 8, strip]; M of 8 rows are used
  const int stages = (shape.chunks - warp + warps - 1) / warps * chunk_stages;
  const auto start_of = [&](int i) {
    return (warp + i / chunk_stages * warps) * chunk_size + i % chunk_stages * few_depth;
  };
  const auto place_of = [&](int i) { return ring + static_cast<uint32_t>(i % Stages * stage_bytes); };
  const auto copy_w = [&](int i) {
    const int unit = static_cast<int>(lane) % 16, k = start_of(i) + unit * 16, count = min(16, max(0, shape.K - k));
    const uint8_t* const from = shape.values + (count > 0 ? k : 0);
#pragma unroll
    for (int j = 0; j < strip; j += 2) {
      const int r = j + static_cast<int>(lane) / 16;
      cp_async_streaming(place_of(i) + static_cast<uint32_t>(r * few_depth + ((unit ^ (r & 7)) << 4)),
                         from + int64_t{min(first_row + r, shape.N - 1)} * shape.values_stride, count);
    }
  };
  const auto copy_x = [&](int i) {
    const int unit = static_cast<int>(lane), k = start_of(i) + unit * 8, count = min(16, max(0, (shape.K - k) * 2));
    const __nv_bfloat16* const from = shape.x + (count > 0 ? k : 0);
    for (int m = 0; m < shape.M; ++m)
      cp_async_streaming(place_of(i) + static_cast<uint32_t>(w_stage_bytes + m * few_depth * 2 + ((unit ^ m) << 4)),
                         from + m * shape.x_stride, count);
  };
  // Prologue.
  griddep_launch_dependents();
  // w is constant during a pass, so it may be read before the kernel before has ended.
#pragma unroll
  for (int s = 0; s < Stages; ++s)
    if (s < stages) copy_w(s);
  griddep_wait();  // x is written
#pragma unroll
  for (int s = 0; s < Stages; ++s) {
    if (s < stages) copy_x(s);
    cp_async_commit();
  }
  // Rows of x past M repeat the last row; their results are not stored.
  const uint32_t g = lane / 4, t = lane % 4, token = min(lane % 8, static_cast<uint32_t>(shape.M - 1));
  float d[4] = {};
  // Main loop over the warp's stages.
  for (int i = 0; i < stages; ++i) {
    cp_async_wait<Stages - 1>();
    __syncwarp();  // the stage's copies of all lanes have landed
    const uint32_t w_row = place_of(i) + g * few_depth, x_row = place_of(i) + w_stage_bytes + token * few_depth * 2;
#pragma unroll
    for (uint32_t s = 0; s < few_depth / 16; s += 2) {
      uint32_t b[4];
      ldmatrix_x4(x_row + (((2 * s + lane / 8) ^ token) << 4), b[0], b[1], b[2], b[3]);
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) {
        uint32_t a[4];
        load_left<Format>(a, w_row + (((s + j) ^ (g & 7)) << 4), 8 * few_depth, lane);
        mma_m16n8k16(d, a, b[2 * j], b[2 * j + 1]);
      }
    }
    // End of a chunk: its sums go to shared memory.
    if (i % chunk_stages == chunk_stages - 1) {
      float* const to = sums + (warp + i / chunk_stages * warps) * (max_small_m * strip);
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        to[(2 * t + e % 2) * strip + g + e / 2 * 8] = d[e];
        d[e] = 0;
      }
    }
    __syncwarp();  // all lanes have read the stage
    if (i + Stages < stages) {
      copy_w(i + Stages);
      copy_x(i + Stages);
    }
    cp_async_commit();
  }
  __syncthreads();  // the sums of all chunks are in shared memory
  // Reduction and epilogue.
  for (int e = static_cast<int>(threadIdx.x); e < shape.M * strip; e += static_cast<int>(blockDim.x)) {
    const int n = first_row + e % strip;
    if (n >= shape.N) continue;
    float total = sums[e];
    for (int c = 1; c < shape.chunks; ++c) total += sums[c * (max_small_m * strip) + e];
    epilogue.store(total * shape.scales[n], e / strip, n);
  }
}

// Rows of x and w are 16-byte aligned; K > 0.
template <class Format>
void launch_few(cudaStream_t stream, const FewShape& shape, const GemmEpilogue& epilogue) {
  const int rounds = (shape.chunks + few_warps - 1) / few_warps, warps = (shape.chunks + rounds - 1) / rounds;
  const auto bytes = [&](int stages) {
    return warps * stages * shape.stage_bytes() + shape.chunks * max_small_m * strip * 4;
  };
  const auto launch = [&](auto stages) {
    const auto kernel = few_kernel<Format, stages()>;
    allow_shared_memory(kernel, static_cast<size_t>(max_shared_bytes()));
    launch_pdl(stream, kernel, dim3(static_cast<unsigned>((shape.N + strip - 1) / strip)), warps * 32, bytes(stages()),
               1, shape, epilogue);
  };
  if (rounds > 1 && bytes(4) <= max_shared_bytes())
    launch(std::integral_constant<int, 4>());
  else
    launch(std::integral_constant<int, 2>());
}
// True if launch_few() supports M rows of K columns.
inline bool takes_few(int64_t M, int64_t K) {
  const int64_t chunks = (K + chunk_size - 1) / chunk_size;
  return M <= max_small_m && std::min<int64_t>(chunks, few_warps) * 2 * (w_stage_bytes + M * few_depth * 2) +
                                     chunks * max_small_m * strip * 4 <=
                                 max_shared_bytes();
}

// As gemm_quantized, for arguments that takes_few() accepts.
template <class Format>
void run_few(Context& context, const GemmQuantized& args) {
  FewShape shape{};
  shape.values = numbers<const uint8_t>(args.w.values);
  shape.scales = numbers<const float>(args.w.scales);
  shape.x = numbers<const __nv_bfloat16>(args.x);
  shape.values_stride = args.w.values.row_stride;
  shape.x_stride = args.x.row_stride;
  shape.M = static_cast<int>(args.x.dim(0));
  shape.N = static_cast<int>(args.w.values.dim(0));
  shape.K = static_cast<int>(args.x.dim(1));
  shape.chunks = (shape.K + chunk_size - 1) / chunk_size;
  launch_few<Format>(cuda_stream(context), shape, GemmEpilogue(args.y, args.bias, args.residual));
}

}  // namespace hone::quantized
