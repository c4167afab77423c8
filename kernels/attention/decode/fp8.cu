// attention_paged with an e4m3 cache and bf16 queries, for prefill chunks and decode alike.
//
// Use       caches in fp8 (PagedKv::k_scale is set).
// Tile      16 rows of one sequence and KV head by splits of 1024 keys. Grid: KV heads x row tiles x splits if the call
//           has few tiles, else a block loops over its splits.
// Roles     8 warps; each computes one key block of 128 of the split, from global memory to registers. Then 16 threads
//           per row merge the eight results. With W = 2 four warps compute and are merged, then the other four.
// Pipeline  none: K and V bytes are loaded by 16-byte (V for D = 64: 8-byte) loads.
// Smem      o of 8 / W warps 512 / W * (D + 8) bytes + m, l 1 KB + slots 4 KB + scales 8 KB: 49, 81 or 145 KB for D =
//           64, 128, 256; 79 KB for D = 256 and W = 2, where a thread block may not have 145.
// Numerics  its own rule: that of numerics.cuh, except that each block of 128 keys starts at m = -inf, l = 0, o = 0 and
//           is merged into the split's total as splits are merged. s = (q . k) * k_scale; p * v_scale is rounded to
//           bf16 for p . v. The order of a head's elements within an MMA is that of the 16-byte loads. Prefill and
//           decode have the same bits.
// PDL       both kernels trigger dependents, then wait, at the start.
// Limits    head dimension a multiple of 16 up to 128, of 32 up to 256; rows of K and V 16-byte aligned; fewer than
//           65,536 row tiles.
#include "kernels/attention/mma.cuh"
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/pdl.cuh"
#include "kernels/quant/quant_format.cuh"

namespace hone::attention {
namespace {

constexpr int warps = split_blocks, threads = 32 * warps, rows = 16, threads_of_row = threads / rows;

struct Cache {
  const uint8_t *k, *v;
  const float *k_scale, *v_scale;
  int64_t k_stride, v_stride, scale_stride;
};

// Partial results if a row has several thread blocks: o [tiles, Hk, splits, rows, d]; m, l [tiles, Hk, splits, rows]. o
// is nullptr if one thread block loops over all splits and writes the output.
struct SplitPartials {
  float *o, *m, *l;
};

// Results of the warps in shared memory. Column d of a row lies at place(d), which avoids most bank conflicts.
template <int D, int W>
struct Shared {
  static constexpr int chunk = D / 8, wave_warps = warps / W;
  float o[wave_warps][rows][8 * (chunk + 1)];
  float m[warps][rows], l[warps][rows];
  uint32_t slots[split_keys];
  float k_scale[split_keys], v_scale[split_keys];
  static __device__ int place(int d) { return d / chunk * (chunk + 1) + d % chunk; }
};

// Rows [first, end) of a sequence, and the keys [low, high] that any of them sees.
struct RowTile {
  Sequence sequence;
  int s, kv_head, first, end, low, high;
  __device__ int position(int row, int group) const { return sequence.position + row / group; }
};

// Byte i of two words as two bf16.
template <int i>
__device__ inline uint32_t decode_column(uint32_t first, uint32_t second) {
  return Fp8Pairs::widen(take_bytes(first, second, i << 4 | (i + 4) << 12));
}

template <int Bytes>
struct Words {
  uint32_t word[Bytes / 4] = {};
  __device__ void load(const uint8_t* from) {
    if constexpr (Bytes == 8) {
      const uint2 x = *reinterpret_cast<const uint2*>(from);
      word[0] = x.x;
      word[1] = x.y;
    } else {
#pragma unroll
      for (int i = 0; i < Bytes / 16; ++i) {
        const uint4 x = reinterpret_cast<const uint4*>(from)[i];
        word[4 * i] = x.x;
        word[4 * i + 1] = x.y;
        word[4 * i + 2] = x.z;
        word[4 * i + 3] = x.w;
      }
    }
  }
};

// Loads 64 columns of the rows, starting at 64 * part, as A operands. Elements 16 t + 4 i and following belong to MMA
// i.
__device__ inline void load_queries(uint32_t (&q)[4][4], const AttentionCall<Bf16>& call, const RowTile& tile, int part,
                                    int g, int t) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = tile.first + g + 8 * r, token = row / call.group, column = 64 * part + 16 * t;
    const bool real = row < tile.end && column < call.dim;
    const Bf16* const from = call.q + int64_t{tile.sequence.begin + token} * call.q_stride +
                             (tile.kv_head * call.group + row - token * call.group) * call.dim + column;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const uint4 numbers = real ? *reinterpret_cast<const uint4*>(from + 4 * i) : uint4{};
      q[i][r] = numbers.x;
      q[i][r + 2] = numbers.y;
      q[i + 1][r] = numbers.z;
      q[i + 1][r + 2] = numbers.w;
    }
  }
}

// One warp computes one key block. `key` is its first key; `own` is that key's index within the split.
template <int D, int W>
__device__ void attend_block(Shared<D, W>& shared, const AttentionCall<Bf16>& call, const Cache& cache,
                             const RowTile& tile, int key, int own) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32), g = lane / 4,
            t = lane % 4;
  const uint32_t* const slots = shared.slots + own;
  // Scores q . k, 64 columns of the head at a time.
  float s[16][4];
#pragma unroll
  for (int n = 0; n < 16; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = 0;
#pragma unroll 1
  for (int part = 0; part < D / 64; ++part) {
    uint32_t q[4][4];
    load_queries(q, call, tile, part, g, t);
    const int column = 64 * part + 16 * t;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      Words<16> bytes;
      if (column < call.dim)
        bytes.load(cache.k + int64_t{slots[8 * n + g]} * cache.k_stride + tile.kv_head * call.dim + column);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        mma_m16n8k16(s[n], q[i], Fp8Pairs::decode(bytes.word[i]), Fp8Pairs::decode(bytes.word[i] >> 16));
    }
  }
  // Softmax of the block: scale, mask, weights, row sums.
  uint32_t p[16][2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = tile.first + g + 8 * r, position = tile.position(row, call.group);
    const int last = row < tile.end ? position - key - 2 * t : -1,
              first = first_seen(position, call.window) - key - 2 * t;
    float m = -INFINITY;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const float2 scale = *reinterpret_cast<const float2*>(shared.k_scale + own + 8 * n + 2 * t);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& x = s[n][2 * r + i];
        x = 8 * n + i >= first && 8 * n + i <= last ? x * (i == 0 ? scale.x : scale.y) : -INFINITY;
        m = fmaxf(m, x);
      }
    }
    m = quad_max(m);
    const float shift = shift_of(base_of(m), call.c);
    float sum = 0;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const float2 scale = *reinterpret_cast<const float2*>(shared.v_scale + own + 8 * n + 2 * t);
      const float a = weight(s[n][2 * r], call.c, shift), b = weight(s[n][2 * r + 1], call.c, shift);
      sum += a;
      sum += b;
      p[n][r] = pack_bf16(a * scale.x, b * scale.y);
    }
    sum = quad_sum(sum);
    if (t == 0) {
      shared.m[warp][g + 8 * r] = m;
      shared.l[warp][g + 8 * r] = sum;
    }
  }
  // p . v; a lane holds chunk columns of each value.
  constexpr int chunk = Shared<D, W>::chunk;
  float o[chunk][4];
#pragma unroll
  for (int j = 0; j < chunk; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) o[j][i] = 0;
#pragma unroll
  for (int n = 0; n < 16; n += 2) {
    Words<chunk> bytes[4];  // keys 2t, 2t + 1, 2t + 8, 2t + 9; the lane's columns start at g * chunk
    if (g * chunk < call.dim)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        bytes[i].load(cache.v + int64_t{slots[8 * n + i / 2 * 8 + 2 * t + i % 2]} * cache.v_stride +
                      tile.kv_head * call.dim + g * chunk);
    const uint32_t a[4] = {p[n][0], p[n][1], p[n + 1][0], p[n + 1][1]};
    const auto columns = [&]<int... j>(std::integer_sequence<int, j...>) {
      (mma_m16n8k16(o[j], a, decode_column<j % 4>(bytes[0].word[j / 4], bytes[1].word[j / 4]),
                    decode_column<j % 4>(bytes[2].word[j / 4], bytes[3].word[j / 4])),
       ...);
    };
    columns(std::make_integer_sequence<int, chunk>());
  }
#pragma unroll
  for (int j = 0; j < chunk; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      shared.o[warp % shared.wave_warps][g + i / 2 * 8][(2 * t + i % 2) * (chunk + 1) + j] = o[j][i];
}

// A thread's columns of a row: the running total of merged results.
template <int D>
struct Total {
  float m = -INFINITY, l = 0, o[D / threads_of_row];
  bool any = false;
  template <class O>
  __device__ void merge(float other_m, float other_l, float c, O other_o) {
    if (!any) {
      m = other_m;
      l = other_l;
      any = true;
#pragma unroll
      for (int i = 0; i < D / threads_of_row; ++i) o[i] = other_o(i);
      return;
    }
    const MergeFactors factors = merge_factors(m, other_m, c);
    m = factors.m;
    l = merged(l, other_l, factors);
#pragma unroll
    for (int i = 0; i < D / threads_of_row; ++i) o[i] = merged(o[i], other_o(i), factors);
  }
};

template <int D, int W>
__global__ void __launch_bounds__(threads, D > 128 ? 1 : 2)
    fp8_kernel(const __grid_constant__ AttentionCall<Bf16> call, const Cache cache, const SplitPartials partials) {
  extern __shared__ __align__(16) unsigned char bytes[];
  using Memory = Shared<D, W>;
  Memory& shared = *reinterpret_cast<Memory*>(bytes);
  hopper::griddep_launch_dependents();
  hopper::griddep_wait();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const Tile place = tile_at(call.offsets, call.sequences, call.group, rows, static_cast<int>(blockIdx.y));
  RowTile tile{
      sequence_of(call, place.sequence), place.sequence, static_cast<int>(blockIdx.x), place.first_row, 0, 0, 0};
  tile.end = min(tile.first + rows, tile.sequence.tokens * call.group);
  if (tile.first >= tile.end) return;
  tile.low = first_seen(tile.position(tile.first, call.group), call.window);
  tile.high = tile.position(tile.end - 1, call.group);

  Total<D> total;
  const int own_row = thread / threads_of_row, own_column = thread % threads_of_row;
  const int first_split = partials.o ? static_cast<int>(blockIdx.z) : tile.low / split_keys;
  const int end_split = partials.o ? first_split + 1 : tile.high / split_keys + 1;
  for (int split = first_split; split < end_split; ++split) {
    const int begin = split * split_keys, low = max(tile.low - begin, 0) / block_keys,
              high = min(tile.high - begin, split_keys - 1) / block_keys;
    if (tile.high < begin || tile.low >= begin + split_keys)
      return;  // one thread block per split, and this split is masked for all rows
    // Masked keys are replaced by the nearest visible one; their weight is zero.
    for (int i = thread; i < split_keys; i += threads) {
      const auto slot =
          static_cast<uint32_t>(slot_of(call, tile.sequence, tile.s, min(max(begin + i, tile.low), tile.high)));
      shared.slots[i] = slot;
      shared.k_scale[i] = cache.k_scale[int64_t{slot} * cache.scale_stride + tile.kv_head];
      shared.v_scale[i] = cache.v_scale[int64_t{slot} * cache.scale_stride + tile.kv_head];
    }
    __syncthreads();  // slots and scales are complete
    // Merge the blocks of the split, then the split into the total.
    Total<D> of_split;
#pragma unroll 1
    for (int wave = 0; wave < W; ++wave) {
      const int first = max(low, wave * Memory::wave_warps), last = min(high, (wave + 1) * Memory::wave_warps - 1);
      if (warp >= first && warp <= last)
        attend_block<D, W>(shared, call, cache, tile, begin + warp * block_keys, warp * block_keys);
      __syncthreads();  // the results of the wave are in shared memory
      for (int block = first; block <= last; ++block)
        of_split.merge(shared.m[block][own_row], shared.l[block][own_row], call.c, [&](int i) {
          return shared.o[block % Memory::wave_warps][own_row][Memory::place(own_column + i * threads_of_row)];
        });
      __syncthreads();  // all threads have merged; the next wave or split may overwrite shared memory
    }
    total.merge(of_split.m, of_split.l, call.c, [&](int i) { return of_split.o[i]; });
  }
  // Epilogue: the partial result or the output.
  const int row = tile.first + own_row, token = row / call.group;
  if (row >= tile.end) return;
  if (partials.o) {
    const int64_t at = ((int64_t{blockIdx.y} * call.kv_heads + tile.kv_head) * gridDim.z + blockIdx.z) * rows + own_row;
#pragma unroll
    for (int i = 0; i < D / threads_of_row; ++i)
      if (own_column + i * threads_of_row < call.dim)
        partials.o[at * call.dim + own_column + i * threads_of_row] = total.o[i];
    if (own_column == 0) {
      partials.m[at] = total.m;
      partials.l[at] = total.l;
    }
    return;
  }
  const int head = tile.kv_head * call.group + row - token * call.group;
  const float inverse = end_of_row(call, head, total.m, total.l).inverse;
  Bf16* const out = call.out + int64_t{tile.sequence.begin + token} * call.out_stride + head * call.dim;
#pragma unroll
  for (int i = 0; i < D / threads_of_row; ++i)
    if (own_column + i * threads_of_row < call.dim)
      out[own_column + i * threads_of_row] = __float2bfloat16_rn(total.o[i] * inverse);
}

// Merges the splits of each row in ascending order; one warp per row.
__global__ void __launch_bounds__(32 * rows)
    merge_kernel(const __grid_constant__ AttentionCall<Bf16> call, const SplitPartials partials, int splits) {
  hopper::griddep_launch_dependents();
  hopper::griddep_wait();
  const int kv_head = static_cast<int>(blockIdx.x), own_row = static_cast<int>(threadIdx.x / 32);
  const Tile place = tile_at(call.offsets, call.sequences, call.group, rows, static_cast<int>(blockIdx.y));
  const Sequence sequence = sequence_of(call, place.sequence);
  const int first = place.first_row, end = min(first + rows, sequence.tokens * call.group), row = first + own_row,
            token = row / call.group;
  if (row >= end) return;
  // The splits that any row of the tile sees, as in fp8_kernel. A split that is masked for this row changes nothing.
  const int low = first_seen(sequence.position + first / call.group, call.window) / split_keys,
            high = (sequence.position + (end - 1) / call.group) / split_keys;
  const int64_t at = (int64_t{blockIdx.y} * call.kv_heads + kv_head) * splits * rows + own_row;
  const int head = kv_head * call.group + row - token * call.group;
  Bf16* const out = call.out + int64_t{sequence.begin + token} * call.out_stride + head * call.dim;
  for (int column = static_cast<int>(threadIdx.x % 32); column < call.dim; column += 32) {
    const auto o_of = [&](int split) { return partials.o[(at + int64_t{split} * rows) * call.dim + column]; };
    float m = partials.m[at + int64_t{low} * rows], l = partials.l[at + int64_t{low} * rows], o = o_of(low);
    for (int split = low + 1; split <= high; ++split) {
      const MergeFactors factors = merge_factors(m, partials.m[at + int64_t{split} * rows], call.c);
      m = factors.m;
      l = merged(l, partials.l[at + int64_t{split} * rows], factors);
      o = merged(o, o_of(split), factors);
    }
    out[column] = __float2bfloat16_rn(o * end_of_row(call, head, m, l).inverse);
  }
}

// True if a thread block may have the shared memory of D = 256 with all warps at once.
bool wide_fits(const DeviceLimits& limits) { return sizeof(Shared<256, 1>) <= limits.shared_per_block; }

void paged(Context& context, const AttentionPaged& args) {
  const AttentionCall<Bf16> call = paged_call_of<Bf16>(attention_paged, args, DType::u8);
  check_shape(attention_paged, "k_scale", args.cache.k_scale, {args.cache.k.dim(0), call.kv_heads});
  check_shape(attention_paged, "v_scale", args.cache.v_scale, {args.cache.k.dim(0), call.kv_heads});
  HONE_CHECK(args.cache.k_scale.row_stride == args.cache.v_scale.row_stride, "attention_paged: k_scale has row stride ",
             args.cache.k_scale.row_stride, ", v_scale ", args.cache.v_scale.row_stride, "; they must be equal");
  HONE_CHECK(reads_in_units(args.q) && reads_in_units(args.out) && args.cache.k.row_stride % 16 == 0 &&
                 args.cache.v.row_stride % 16 == 0,
             "attention_paged: the rows of q, k, v and out must be 16-byte aligned");
  if (call.tokens == 0) return;
  const Cache cache{numbers<const uint8_t>(args.cache.k),
                    numbers<const uint8_t>(args.cache.v),
                    numbers<const float>(args.cache.k_scale),
                    numbers<const float>(args.cache.v_scale),
                    args.cache.k.row_stride,
                    args.cache.v.row_stride,
                    args.cache.k_scale.row_stride};
  const int tiles = tile_bound(call.tokens, call.sequences, call.group, rows);
  HONE_CHECK(tiles < 65536, "attention_paged: ", call.tokens, " tokens of ", call.sequences, " sequences need ", tiles,
             " row tiles with an fp8 cache; the maximum is 65535");
  const int64_t keys = args.cache.block_table.dim(1) * args.cache.block_size;
  const auto splits = static_cast<int>((keys + split_keys - 1) / split_keys);
  const bool shares = splits > 1 && int64_t{tiles} * call.kv_heads < 4 * num_sms();
  const ScratchScope scope(context);
  SplitPartials partials{};
  const int64_t places = int64_t{tiles} * call.kv_heads * splits * rows;
  if (shares) {
    partials.o = numbers<float>(context.scratch().take(DType::f32, {places, call.dim}));
    partials.m = numbers<float>(context.scratch().take(DType::f32, {places}));
    partials.l = numbers<float>(context.scratch().take(DType::f32, {places}));
  }
  const dim3 grid(static_cast<unsigned>(call.kv_heads), static_cast<unsigned>(tiles),
                  shares ? static_cast<unsigned>(splits) : 1);
  with_width(call.dim, [&](auto width) {
    const auto launch = [&](auto waves) {
      constexpr int D = width(), W = waves();
      constexpr size_t bytes = sizeof(Shared<D, W>);
      allow_shared_memory(fp8_kernel<D, W>, bytes);
      launch_pdl(cuda_stream(context), fp8_kernel<D, W>, grid, threads, static_cast<int>(bytes), 1, call, cache,
                 partials);
    };
    if (width() > 128 && !wide_fits(device_limits()))
      launch(std::integral_constant < int, width() <= 128 ? 1 : 2 > {});
    else
      launch(std::integral_constant<int, 1>{});
  });
  if (shares)
    launch_pdl(cuda_stream(context), merge_kernel, dim3(grid.x, grid.y), 32 * rows, 0, 1, call, partials, splits);
  check_launch(attention_paged);
}

bool supports(const AttentionPaged& args) {
  const int64_t unit = args.q.dim(2) > 128 ? 32 : 16;  // elements that the 16-byte loads of a lane group cover
  return args.shape.softcap == 0 && args.cache.k.dtype == DType::u8 && args.q.dtype == DType::bf16 &&
         args.q.dim(2) % unit == 0 && args.q.dim(2) <= 256;
}

[[maybe_unused]] const bool added = attention_paged.add({"fp8", DeviceKind::cuda, paged, 20, supports});
[[maybe_unused]] const bool planned =
    launch_plans().add("attention_paged.fp8", [](const DeviceLimits& limits, LaunchPlans& out) {
      out.add("fp8_kernel D = 64", fp8_kernel<64, 1>, threads, sizeof(Shared<64, 1>));
      out.add("fp8_kernel D = 128", fp8_kernel<128, 1>, threads, sizeof(Shared<128, 1>));
      if (wide_fits(limits))
        out.add("fp8_kernel D = 256", fp8_kernel<256, 1>, threads, sizeof(Shared<256, 1>));
      else
        out.add("fp8_kernel D = 256, W = 2", fp8_kernel<256, 2>, threads, sizeof(Shared<256, 2>));
    });

}  // namespace
}  // namespace hone::attention
