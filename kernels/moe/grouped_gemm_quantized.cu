// grouped_gemm_quantized for bf16 rows: decodes int8 or e4m3 weights in the tile, at the load of the tensor cores'
// operands.
//
// Use       "mma": bf16, aligned rows. "panels" (grouped_gemm_quantized_panels.cu) serves the rest.
// Tile      128 rows of w by 16 or 64 rows of x, by the rows per expert; K step 64. Blocks without a tile end at once.
// Roles     4 warps, all alike; a warp computes 32 rows of w for all rows of x. Each warp finds the tile by itself.
// Pipeline  4 smem stages (cp.async groups), one __syncthreads() per stage.
// Smem      4 * (128 * 64 bytes of w + rows of x * 128 bytes): 40 or 64 KB. A 16-byte unit u of row r lies at
//           u ^ r / 2 % 4 (w) or u ^ r % 8 (x).
// Numerics  K chunks of gemm_cuda_chunk, each one f32 accumulator from zero, added in ascending order, then scaled and
//           rounded: the bits of gemm_quantized.
// PDL       plain launch.
// Limits    rows of x and w 16-byte aligned; K > 0; fewer than 2^31 rows and tiles.
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/group_tiles.cuh"
#include "kernels/moe/grouped_gemm_quantized.h"
#include "kernels/quant/quant_format.cuh"

namespace hone {
namespace {

template <int Rows>
struct QuantizedTile {
  static constexpr int rows = Rows, columns = 128, depth = 64, stages = 4, threads = 128;
  static constexpr int w_bytes = columns * depth, stage_bytes = w_bytes + rows * depth * 2;
  static constexpr int shared_bytes = stages * stage_bytes;
  static constexpr int groups = rows / 8, chunk_stages = static_cast<int>(gemm_cuda_chunk) / depth;
};

struct QuantizedGroups {
  const int32_t* offsets;
  const uint8_t* values;
  const float* scales;
  const __nv_bfloat16* x;
  int64_t matrix, x_stride;  // elements from an expert's matrix to the next one's
  int num_experts, rows, N, K, n_tiles;
};

// Copies a stage: rows of w [column, column + 128) and of x [row, end), columns [k, k + 64). The rest is zero.
template <class Tile>
__device__ inline void copy_stage(uint32_t to, const QuantizedGroups& of, const uint8_t* w, int row, int end,
                                  int column, int k) {
  const int thread = static_cast<int>(threadIdx.x);
  constexpr int w_units = Tile::depth / 16, x_units = Tile::depth / 8;
#pragma unroll
  for (int i = thread; i < Tile::columns * w_units; i += Tile::threads) {
    const int r = i / w_units, unit = i % w_units, at = k + unit * 16;
    const int bytes = column + r < of.N ? min(16, max(0, of.K - at)) : 0;
    cp_async_bytes(to + static_cast<uint32_t>(r * Tile::depth + ((unit ^ (r >> 1 & 3)) << 4)),
                   bytes > 0 ? w + int64_t{column + r} * of.K + at : w, bytes);
  }
#pragma unroll
  for (int i = thread; i < Tile::rows * x_units; i += Tile::threads) {
    const int r = i / x_units, unit = i % x_units, at = k + unit * 8;
    const int bytes = row + r < end ? min(16, max(0, (of.K - at) * 2)) : 0;
    cp_async_bytes(to + static_cast<uint32_t>(Tile::w_bytes + r * Tile::depth * 2 + ((unit ^ (r & 7)) << 4)),
                   bytes > 0 ? of.x + int64_t{row + r} * of.x_stride + at : of.x, bytes);
  }
}

// sums += the stage's product, for rows warp * 32 .. + 32 of w: two blocks of 16.
template <class Format, class Tile>
__device__ inline void multiply_stage(float (&sums)[2][Tile::groups][4], uint32_t stage, int warp, int lane) {
  const int g = lane / 4;
#pragma unroll
  for (int s = 0; s < Tile::depth / 16; s += 2) {
    uint32_t b[Tile::groups][4];
#pragma unroll
    for (int i = 0; i < Tile::groups; ++i) {
      const int m = 8 * i + lane % 8;
      mma::ldmatrix_x4(
          stage + static_cast<uint32_t>(Tile::w_bytes + m * Tile::depth * 2 + (((2 * s + lane / 8) ^ (m & 7)) << 4)),
          b[i][0], b[i][1], b[i][2], b[i][3]);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t a[4];
        const int r = warp * 32 + half * 16 + g;
        // Row r + 8 has the same swizzle: it differs in a bit that r / 2 % 4 does not have.
        load_left<Format>(a, stage + static_cast<uint32_t>(r * Tile::depth + (((s + j) ^ (r >> 1 & 3)) << 4)),
                          8 * Tile::depth, static_cast<uint32_t>(lane));
#pragma unroll
        for (int i = 0; i < Tile::groups; ++i) mma::mma_bf16(sums[half][i], a, {b[i][2 * j], b[i][2 * j + 1]});
      }
  }
}

template <class Format, class Tile>
__global__ void __launch_bounds__(Tile::threads) quantized_kernel(QuantizedGroups of, GemmEpilogue epilogue) {
  extern __shared__ __align__(128) char shared[];
  const int number = static_cast<int>(blockIdx.x) / of.n_tiles,
            column = static_cast<int>(blockIdx.x) % of.n_tiles * Tile::columns;
  const GroupTile tile = find_group_tile(of.offsets, of.num_experts, of.rows, Tile::rows, number);
  if (tile.expert < 0) return;
  if (tile.expert == of.num_experts) {
    if (epilogue.residual) return;
    if (epilogue.y_bf16)
      store_zeros(static_cast<__nv_bfloat16*>(epilogue.y), epilogue.y_stride, tile.row, tile.end, Tile::rows, column,
                  of.N, Tile::columns);
    else
      store_zeros(static_cast<float*>(epilogue.y), epilogue.y_stride, tile.row, tile.end, Tile::rows, column, of.N,
                  Tile::columns);
    return;
  }
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t ring = mma::shared_address(shared);
  const uint8_t* const w = of.values + tile.expert * of.matrix;
  const int stages = (of.K + Tile::depth - 1) / Tile::depth;
  const auto copy = [&](int s) {
    if (s < stages)
      copy_stage<Tile>(ring + static_cast<uint32_t>(s % Tile::stages * Tile::stage_bytes), of, w, tile.row, tile.end,
                       column, s * Tile::depth);
    cp_async_commit();
  };
  // Prologue.
#pragma unroll
  for (int s = 0; s < Tile::stages - 1; ++s) copy(s);
  // Main loop.
  float totals[2][Tile::groups][4] = {}, sums[2][Tile::groups][4] = {};
  for (int s = 0; s < stages; ++s) {
    cp_async_wait<Tile::stages - 2>();
    __syncthreads();  // the stage's copies of all threads have landed; all warps have read the stage before
    copy(s + Tile::stages - 1);
    multiply_stage<Format, Tile>(sums, ring + static_cast<uint32_t>(s % Tile::stages * Tile::stage_bytes), warp, lane);
    if (s % Tile::chunk_stages != Tile::chunk_stages - 1 && s + 1 != stages) continue;
      // The end of a chunk.
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < Tile::groups; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          totals[half][i][e] = s < Tile::chunk_stages ? sums[half][i][e] : totals[half][i][e] + sums[half][i][e];
          sums[half][i][e] = 0;
        }
  }
  // Epilogue.
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int n = column + warp * 32 + half * 16 + lane / 4 + e / 2 * 8;
      if (n >= of.N) continue;
      const float scale = of.scales[int64_t{tile.expert} * of.N + n];
#pragma unroll
      for (int i = 0; i < Tile::groups; ++i) {
        const int m = tile.row + 8 * i + lane % 4 * 2 + e % 2;
        if (m < tile.end) epilogue.store(totals[half][i][e] * scale, m, n);
      }
    }
}

template <class Format, class Tile>
void launch(Context& context, const GroupedGemmQuantized& args) {
  const int64_t P = args.y.dim(0), E = args.offsets.dim(0) - 1, N = args.y.dim(1);
  QuantizedGroups of{};
  of.offsets = numbers<const int32_t>(args.offsets);
  of.values = numbers<const uint8_t>(args.w.values);
  of.scales = numbers<const float>(args.w.scales);
  of.x = numbers<const __nv_bfloat16>(args.x);
  of.matrix = args.w.values.row_stride;
  of.x_stride = args.x.row_stride;
  of.num_experts = static_cast<int>(E);
  of.rows = static_cast<int>(P);
  of.N = static_cast<int>(N);
  of.K = static_cast<int>(args.x.dim(1));
  of.n_tiles = static_cast<int>(group_pieces(N, Tile::columns));
  const auto blocks = static_cast<unsigned>(max_group_tiles(P, E, Tile::rows) * of.n_tiles);
  allow_shared_memory(quantized_kernel<Format, Tile>, Tile::shared_bytes);
  quantized_kernel<Format, Tile><<<blocks, Tile::threads, Tile::shared_bytes, cuda_stream(context)>>>(
      of, GemmEpilogue(args.y, {}, args.accumulate ? args.y : Tensor()));
}

// Both tiles have the same bits, so the number of rows may choose one.
void forward(Context& context, const GroupedGemmQuantized& args) {
  check_grouped_gemm(args);
  if (args.y.size() == 0) return;
  const int64_t P = args.y.dim(0), E = args.offsets.dim(0) - 1;
  with_pairs(args.w.format, [&]<class Format>(Format) {
    if (P <= 16 * std::min(P, E))
      launch<Format, QuantizedTile<16>>(context, args);
    else
      launch<Format, QuantizedTile<64>>(context, args);
  });
  check_launch(grouped_gemm_quantized);
}

bool supports(const GroupedGemmQuantized& args) {
  const auto aligned = [](const Tensor& x, int64_t unit) {
    return x.row_stride % unit == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  };
  const Tensor& values = args.w.values;
  return args.x.dtype == DType::bf16 && aligned(args.x, 8) && aligned(values, 16) && values.dim(2) % 16 == 0 &&
         values.dim(2) > 0;
}

[[maybe_unused]] const bool added = grouped_gemm_quantized.add({"mma", DeviceKind::cuda, forward, 5, supports});

void plan_launches(const DeviceLimits&, LaunchPlans& out) {
  out.add("quantized_kernel 16 rows", quantized_kernel<Fp8Pairs, QuantizedTile<16>>, 128,
          QuantizedTile<16>::shared_bytes);
  out.add("quantized_kernel 64 rows", quantized_kernel<Fp8Pairs, QuantizedTile<64>>, 128,
          QuantizedTile<64>::shared_bytes);
}
[[maybe_unused]] const bool planned = launch_plans().add("grouped_gemm_quantized.mma", plan_launches);

}  // namespace
}  // namespace hone
