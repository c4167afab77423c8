// attention_backward for bf16 with mma.sync: dk and dv (of_keys = true), then dq (of_keys = false). Formulas:
// backward.cuh.
//
// Use       bf16 where backward_sm90.cu does not apply.
// Tile      64 rows of the own side (16 per warp) by tiles of 64 rows of the other side, D = 64, 128 or 256 columns.
//           Grid: tiles x KV heads x column parts; keys with D = 256 have two parts of 128 gradient columns.
// Roles     4 warps of 16 own rows; all threads copy.
// Pipeline  2 smem stages of the other side (both matrices, and its lse and delta if of_keys), cp.async.
// Smem      own rows 256 * D bytes + 2 stages of 256 * D + 512 bytes: 49, 97 or 193 KB for D = 64, 128, 256. Blocks per
//           SM: 2, 2, 1.
// Numerics  s and dout . v are recomputed in f32 accumulators, 16 columns per MMA ascending. p and ds are rounded to
//           bf16 as operands. Gradients: one f32 accumulator over the other side in ascending order, rounded once.
// PDL       none.
// Limits    head dimension a multiple of 8 up to 256; rows 16-byte aligned.
#include "kernels/attention/backward/backward.cuh"
#include "kernels/attention/mma.cuh"

namespace hone::attention {
namespace {

constexpr int rows = 64, threads = 128;

template <int D, bool of_keys>
struct TilePlan {
  static constexpr int units = D / 8,
                       columns = of_keys && D > 128 ? 128 : D;  // gradient columns per thread block
  static constexpr uint32_t tile = 2 * rows * D,
                            stage = 2 * tile + 2 * 4 * rows;  // both matrices of a side; lse and delta of its rows
  static constexpr size_t bytes = 2 * tile + 2 * stage;
  static constexpr int ctas = D <= 128 ? 2 : 1;
};

// sum = left . right^T, 16 rows of a warp by 64.
template <int D>
__device__ inline void multiply_tiles(float (&sum)[8][4], uint32_t left, uint32_t right, int warp, int lane) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[n][i] = 0;
#pragma unroll
  for (int d = 0; d < D / 16; ++d) {
    uint32_t a[4];
    ldmatrix_x4(a, left_at<D / 8>(left, 16 * warp, 2 * d, lane));
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      uint32_t b[4];
      ldmatrix_x4(b, right_at<D / 8>(right, 16 * n, 2 * d, lane));
      mma_m16n8k16(sum[2 * n], a, b[0], b[1]);
      mma_m16n8k16(sum[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// sum += weights . tile, 16 rows of a warp by the tile's columns starting at `unit`.
template <int units, int columns>
__device__ inline void add_weighted(float (&sum)[columns / 8][4], const float (&weights)[8][4], uint32_t tile, int unit,
                                    int lane) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const uint32_t a[4] = {pack_bf16(weights[2 * n][0], weights[2 * n][1]),
                           pack_bf16(weights[2 * n][2], weights[2 * n][3]),
                           pack_bf16(weights[2 * n + 1][0], weights[2 * n + 1][1]),
                           pack_bf16(weights[2 * n + 1][2], weights[2 * n + 1][3])};
#pragma unroll
    for (int d = 0; d < columns / 16; ++d) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, summed_at<units>(tile, 16 * n, unit + 2 * d, lane));
      mma_m16n8k16(sum[2 * d], a, b[0], b[1]);
      mma_m16n8k16(sum[2 * d + 1], a, b[2], b[3]);
    }
  }
}

__device__ inline void copy_number_async(uint32_t to, const float* from, bool real) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(real ? 4 : 0) : "memory");
}

template <int D, bool of_keys>
__global__ __launch_bounds__(threads, TilePlan<D, of_keys>::ctas) void backward_kernel(
    const __grid_constant__ BackwardCall<Bf16> call) {
  using P = TilePlan<D, of_keys>;
  constexpr int units = P::units, columns = P::columns;
  extern __shared__ __align__(128) unsigned char shared[];
  const AttentionCall<Bf16>& forward = call.forward;
  const int group = forward.group, dim = forward.dim, heads = forward.kv_heads * group,
            kv_head = static_cast<int>(blockIdx.y);
  // The first keys and the last queries of a sequence have the most work, so they start first.
  const Tile tile = tile_at(forward.offsets, forward.sequences, of_keys ? 1 : group, rows,
                            static_cast<int>(of_keys ? blockIdx.x : gridDim.x - 1 - blockIdx.x));
  const Sequence sequence = sequence_of(forward, tile.sequence);
  const int own_begin = tile.first_row, own_end = min(own_begin + rows, sequence.tokens * (of_keys ? 1 : group));
  if (own_begin >= own_end) return;
  const Side<Bf16> queries = query_side(call, sequence.begin, kv_head), keys = key_side(call, sequence.begin, kv_head);
  const Side<Bf16>&own = of_keys ? keys : queries, &other = of_keys ? queries : keys;
  const Range range =
      of_keys ? rows_seeing(forward, sequence.tokens, own_begin, own_end) : keys_seen(forward, own_begin, own_end);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;

  const uint32_t own_first = shared_address(shared), own_second = own_first + P::tile, stages = own_second + P::tile;
  const auto place = [&](int row) {
    return int64_t{sequence.begin + row / group} * heads + kv_head * group + row % group;
  };
  const auto load = [&](const Side<Bf16>& side, uint32_t to, int begin, int end) {
#pragma unroll 4
    for (int i = thread; i < rows * units; i += threads) {
      const int row = i / units, unit = i % units;
      const bool real = begin + row < end && unit * 8 < dim;
      cp_async(unit_at<units>(to, row, unit), real ? side.first_row(begin + row, dim) + unit * 8 : side.first, real);
      cp_async(unit_at<units>(to + P::tile, row, unit),
               real ? side.second_row(begin + row, dim) + unit * 8 : side.second, real);
    }
  };
  const auto load_stage = [&](int step) {
    const int begin = range.begin + step * rows;
    if (begin < range.end) {
      const uint32_t to = stages + static_cast<uint32_t>(step % 2) * P::stage;
      load(other, to, begin, range.end);
      if (of_keys && thread < rows) {
        const int row = begin + thread;
        const bool real = row < range.end;
        const uint32_t at = to + 2 * P::tile + 4 * static_cast<uint32_t>(thread);
        const int64_t token = sequence.begin + row / group, head = kv_head * group + row % group;
        copy_number_async(at, real ? call.lse + token * call.lse_stride + head : call.lse, real);
        copy_number_async(at + 4 * rows, real ? call.delta + place(row) : call.delta, real);
      }
    }
    cp_async_commit();
  };
  // Prologue: own rows and the first tile of the other side form the first copy group.
  load(own, own_first, own_begin, own_end);
  load_stage(0);

  constexpr float log2e = 1.44269504f;
  const int warp_begin = own_begin + 16 * warp, warp_end = min(warp_begin + 16, own_end);
  float own_shift[2] = {0, 0}, own_delta[2] = {0, 0};
  if constexpr (!of_keys) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_begin + lane / 4 + 8 * r;
      if (row >= own_end) continue;
      own_shift[r] =
          -log2e * call.lse[int64_t{sequence.begin + row / group} * call.lse_stride + kv_head * group + row % group];
      own_delta[r] = call.delta[place(row)];
    }
  }

  float first_sum[columns / 8][4],
      second_sum[of_keys ? columns / 8 : 1][4];  // accumulators of ds . first and p . second
#pragma unroll
  for (int d = 0; d < columns / 8; ++d)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      first_sum[d][i] = 0;
      if constexpr (of_keys) second_sum[d][i] = 0;
    }
  const int column_unit = static_cast<int>(blockIdx.z) * (columns / 8);

  // Main loop over tiles of the other side.
  for (int step = 0; range.begin + step * rows < range.end; ++step) {
    const int begin = range.begin + step * rows;
    load_stage(step + 1);
    cp_async_wait<1>();
    __syncthreads();  // the copies of all threads for this stage have landed
    const uint32_t first = stages + static_cast<uint32_t>(step % 2) * P::stage, second = first + P::tile;
    // Keys and query positions of the warp's part, as if both tiles were full.
    const int key_low = of_keys ? warp_begin : begin, key_high = key_low + (of_keys ? 15 : rows - 1);
    const int position_low = (of_keys ? begin : warp_begin) / group,
              position_high = (of_keys ? begin + rows - 1 : warp_begin + 15) / group;
    const bool sees =
        warp_begin < warp_end && key_low <= position_high && key_high >= first_seen(position_low, forward.window);
    if (sees) {
      float p[8][4], ds[8][4];
      // s and dout . v, then p and ds of the accumulator elements.
      multiply_tiles<D>(p, own_first, first, warp, lane);
      multiply_tiles<D>(ds, own_second, second, warp, lane);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        float column_shift[2] = {0, 0}, column_delta[2] = {0, 0};
        if constexpr (of_keys) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const auto* stats = reinterpret_cast<const float*>(shared + (first - own_first) + 2 * P::tile);
            const int column = 8 * n + 2 * (lane % 4) + i;
            column_shift[i] = -log2e * stats[column];
            column_delta[i] = stats[rows + column];
          }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          p[n][i] = weight(p[n][i], forward.c, of_keys ? column_shift[i % 2] : own_shift[i / 2]);
          ds[n][i] -= of_keys ? column_delta[i % 2] : own_delta[i / 2];
        }
      }
      // Masked elements are zero; tiles without masked elements skip this.
      if (key_high > position_low || key_low < first_seen(position_high, forward.window)) {
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = warp_begin + lane / 4 + i / 2 * 8, column = begin + 8 * n + 2 * (lane % 4) + i % 2;
            const int key = of_keys ? row : column, position = (of_keys ? column : row) / group;
            if (key > position || key < first_seen(position, forward.window)) p[n][i] = 0;
          }
      }
#pragma unroll
      // ds, then both gradient GEMMs.
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) ds[n][i] *= p[n][i];
      if constexpr (of_keys) add_weighted<units, columns>(second_sum, p, second, column_unit, lane);
      add_weighted<units, columns>(first_sum, ds, first, column_unit, lane);
    }
    __syncthreads();  // all warps have read the stage; the next step overwrites it
  }
  cp_async_wait<0>();

#pragma unroll
  // Epilogue: scale, round, write.
  for (int r = 0; r < 2; ++r) {
    const int row = warp_begin + lane / 4 + 8 * r;
    if (row >= own_end) continue;
    const int64_t token = sequence.begin + row / own.divisor;
    const int head = own.head + row % own.divisor;
    Bf16* const to =
        of_keys ? call.dk + token * call.dk_stride + head * dim : call.dq + token * call.dq_stride + head * dim;
#pragma unroll
    for (int d = 0; d < columns / 8; ++d) {
      const int column = 8 * (column_unit + d) + 2 * (lane % 4);
      if (column >= dim) continue;
      *reinterpret_cast<uint32_t*>(to + column) =
          pack_bf16(first_sum[d][2 * r] * forward.scale, first_sum[d][2 * r + 1] * forward.scale);
      if constexpr (of_keys)
        *reinterpret_cast<uint32_t*>(call.dv + token * call.dv_stride + head * dim + column) =
            pack_bf16(second_sum[d][2 * r], second_sum[d][2 * r + 1]);
    }
  }
}

template <int D, bool of_keys>
void launch(Context& context, const BackwardCall<Bf16>& call) {
  using P = TilePlan<D, of_keys>;
  const AttentionCall<Bf16>& forward = call.forward;
  allow_shared_memory(backward_kernel<D, of_keys>, P::bytes);
  const dim3 grid(
      static_cast<unsigned>(tile_bound(forward.tokens, forward.sequences, of_keys ? 1 : forward.group, rows)),
      static_cast<unsigned>(forward.kv_heads), D / P::columns);
  backward_kernel<D, of_keys><<<grid, threads, P::bytes, cuda_stream(context)>>>(call);
}

void backward(Context& context, const AttentionBackward& args) {
  const ScratchScope scope(context);
  const BackwardCall<Bf16> call = backward_call_of<Bf16>(context, args);
  for (const Tensor& x : {args.dq, args.dk, args.dv, args.dout, args.out, args.q, args.k, args.v})
    HONE_CHECK(reads_in_units(x), "attention_backward: the rows of each tensor must be 16-byte aligned");
  if (call.forward.tokens == 0) return;
  launch_delta<8>(context, call);
  with_width(call.forward.dim, [&](auto width) {
    launch<width(), true>(context, call);
    launch<width(), false>(context, call);
  });
  check_launch(attention_backward);
}

[[maybe_unused]] const bool added = attention_backward.add(
    {"mma", DeviceKind::cuda, backward, 10, [](const AttentionBackward& args) { return has_units(args.q); }});

}  // namespace
}  // namespace hone::attention
