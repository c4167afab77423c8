// Quantized GEMM for M <= 8 rows: y = (x . values^T) * scales, bf16 x, int8 or e4m3 values. Its speed is close to that
// of reading the values once, at one byte per weight. Part of the bodies "panels" and "sm90".
//
// Use       decode passes of up to 8 rows.
// Tile      16 columns of y (rows of w) by 8 rows of x per thread block.
// Roles     up to 12 warps, as many as fit. A warp takes every warps-th K chunk of 512 and copies its own w and x
//           (mma.sync).
// Pipeline  a ring of 4 (several chunks per warp) or 2 smem stages per warp; a stage is 256 elements along K: w 4 KB,
//           x M * 512 bytes (cp.async).
// Smem      warps * stages * (4 KB + M * 512 bytes) + chunks * 512 bytes of sums; at most what a thread block may have.
// Numerics  K chunks of gemm_cuda_chunk, each one f32 accumulator from zero, added in ascending order, then scaled: the
//           bits of the other bodies.
// PDL       triggers dependents at the start; fills the rings with w before griddep_wait(), then with x.
// Limits    M <= 8; rows of x and w 16-byte aligned; K > 0.
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/quant/internal.h"
#include "kernels/quant/quant_format.cuh"

namespace hone::quantized {
namespace {

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

// Rows of a stage are units of 16 bytes; unit u of row r lies at u ^ r % 8.
template <class Format, int Stages>
__global__ void __launch_bounds__(few_warps * 32) few_kernel(const FewShape shape, const GemmEpilogue epilogue) {
  using namespace hopper;
  using namespace mma;
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
        mma_bf16(d, a, {b[2 * j], b[2 * j + 1]});
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

// The most warps, then the most stages, that fit.
struct FewPlan {
  int warps = 0, stages = 0;  // no warps: nothing fits
  size_t bytes = 0;
  FewPlan(const DeviceLimits& limits, int stage_bytes, int chunks) {
    for (int most = few_warps; most > 0 && warps == 0; --most) {
      const int rounds = (chunks + most - 1) / most, used = (chunks + rounds - 1) / rounds;
      for (int depth = rounds > 1 ? 4 : 2; depth > 0 && warps == 0; depth -= 2) {
        bytes = static_cast<size_t>(used * depth * stage_bytes + chunks * max_small_m * strip * 4);
        if (bytes > limits.shared_per_block) continue;
        warps = used;
        stages = depth;
      }
    }
  }
};

template <class Format>
void launch_few(cudaStream_t stream, const FewShape& shape, const FewPlan& plan, const GemmEpilogue& epilogue) {
  const auto launch = [&](auto stages) {
    const auto kernel = few_kernel<Format, stages()>;
    allow_shared_memory(kernel, plan.bytes);
    launch_pdl(stream, kernel, dim3(static_cast<unsigned>((shape.N + strip - 1) / strip)), plan.warps * 32,
               static_cast<int>(plan.bytes), 1, shape, epilogue);
  };
  if (plan.stages == 4)
    launch(std::integral_constant<int, 4>());
  else
    launch(std::integral_constant<int, 2>());
}

}  // namespace

bool run_few(Context& context, const GemmQuantized& args) {
  const int64_t M = args.x.dim(0), K = args.x.dim(1);
  const auto aligned = [](const Tensor& x, int64_t unit) {
    return x.row_stride % unit == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  };
  if (M > max_small_m || K == 0 || args.x.dtype != DType::bf16 || !aligned(args.x, 8) || !aligned(args.w.values, 16))
    return false;
  const FewShape shape{numbers<const uint8_t>(args.w.values),
                       numbers<const float>(args.w.scales),
                       numbers<const __nv_bfloat16>(args.x),
                       args.w.values.row_stride,
                       args.x.row_stride,
                       static_cast<int>(M),
                       static_cast<int>(args.w.values.dim(0)),
                       static_cast<int>(K),
                       static_cast<int>((K + chunk_size - 1) / chunk_size)};
  const FewPlan plan(device_limits(), shape.stage_bytes(), shape.chunks);
  if (plan.warps == 0) return false;
  with_pairs(args.w.format, [&]<class Format>(Format) {
    launch_few<Format>(cuda_stream(context), shape, plan, GemmEpilogue(args.y, args.bias, args.residual));
  });
  check_launch(gemm_quantized);
  return true;
}

namespace {

[[maybe_unused]] const bool planned =
    launch_plans().add("gemm_quantized.panels", [](const DeviceLimits& limits, LaunchPlans& out) {
      FewShape shape{};
      for (shape.M = 1; shape.M <= max_small_m; ++shape.M)
        for (const int chunks : {1, 2, 4, 12, 13, 37, 64}) {
          const FewPlan plan(limits, shape.stage_bytes(), chunks);
          out.add(concat("few_kernel M = ", shape.M, ", ", chunks, " chunks"), few_kernel<Fp8Pairs, 4>, plan.warps * 32,
                  plan.bytes);
        }
    });

}  // namespace
}  // namespace hone::quantized
