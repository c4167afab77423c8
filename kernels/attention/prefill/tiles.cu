// attention_forward and the prefill chunks of attention_paged for bf16 with mma.sync.
//
// Use       bf16 where prefill_sm90.cu does not apply: paged calls, other GPUs, other head dimensions.
// Tile      64 rows (numbering of call.cuh) by key blocks of 128. Grid: row tiles x KV heads, long tiles first.
// Roles     4 warps of 16 rows; all threads copy.
// Pipeline  one buffer of K and one of V: V is copied while scores are computed, the next K while p . v is (cp.async).
// Smem      dynamic: q 128 * D, K and V 256 * D each, totals of earlier splits 256 * D bytes: 56, 112 or 224 KB for D =
//           64, 128, 256. Static: slots 1 KB. Blocks per SM: 3, 2, 1.
// Numerics  numerics.cuh.
// PDL       none.
// Limits    head dimension a multiple of 8 up to 256; rows of q, k, v and out 16-byte aligned.
#include "kernels/attention/mma.cuh"

namespace hone::attention {
namespace {

constexpr int warps = 4, threads = 32 * warps, rows = 16 * warps;
static_assert(threads == block_keys);  // a thread finds one key of a block

template <int D>
struct TilePlan {
  static constexpr uint32_t units = D / 8, q_bytes = 2 * rows * D, k_bytes = 2 * block_keys * D,
                            total_bytes = 4 * rows * D;
  static constexpr size_t bytes = q_bytes + 2 * k_bytes + total_bytes;
  static constexpr int ctas = D == 64 ? 3 : D == 128 ? 2 : 1;
};

// Rows of one warp and the keys they see.
struct View {
  int first[2], last[2];             // keys that rows lane / 4 and lane / 4 + 8 see; last < first if there is no row
  int low, high, all_low, all_high;  // keys that any row sees; keys that all rows see
};

// s = q . k of 16 rows and one key block; masked elements are -inf. q_at and k_at are the lane's row addresses in the
// tiles.
template <int D, bool masked>
__device__ __forceinline__ void score(float (&s)[16][4], uint32_t q_at, uint32_t q_turn, uint32_t k_at, uint32_t k_turn,
                                      int key, const View& view, int lane) {
  constexpr uint32_t row_bytes = 2 * D;
#pragma unroll
  for (int n = 0; n < 16; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = 0;
#pragma unroll
  for (uint32_t d = 0; d < D / 16; ++d) {
    uint32_t a[4];
    ldmatrix_x4(a, q_at + (q_turn ^ d * 32));
#pragma unroll
    for (int n = 0; n < 8; ++n)
      if (!masked || (key + 16 * n <= view.high && key + 16 * n + 15 >= view.low)) {
        uint32_t b[4];
        ldmatrix_x4(b, k_at + (k_turn ^ d * 32) + n * 16 * row_bytes);
        mma_m16n8k16(s[2 * n], a, b[0], b[1]);
        mma_m16n8k16(s[2 * n + 1], a, b[2], b[3]);
      }
  }
  if constexpr (masked) {
    const int column = key + 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = column + 8 * n + i % 2;
        if (j < view.first[i / 2] || j > view.last[i / 2]) s[n][i] = -INFINITY;
      }
  }
}

// Turns s into p under the new maximum. Updates m and l; alpha is the factor for o.
__device__ inline void soften(float (&s)[16][4], float (&m)[2], float (&l)[2], float (&alpha)[2], float c) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = s[0][2 * r];
#pragma unroll
    for (int n = 0; n < 16; ++n) most = fmaxf(most, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
    const float before = m[r];
    m[r] = fmaxf(before, quad_max(most));
    const float base = base_of(m[r]), shift = shift_of(base, c);
    alpha[r] = rescaling(before, base, c);
    float sum = 0;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) sum += s[n][i] = weight(s[n][i], c, shift);
    l[r] = fmaf(l[r], alpha[r], quad_sum(sum));
  }
}

template <int D, bool masked>
__device__ __forceinline__ void mix(float (&o)[D / 8][4], const float (&p)[16][4], uint32_t v_at, uint32_t v_turn,
                                    int key, const View& view) {
  constexpr uint32_t row_bytes = 2 * D;
#pragma unroll
  for (int n = 0; n < 8; ++n)
    if (!masked || (key + 16 * n <= view.high && key + 16 * n + 15 >= view.low)) {
      const uint32_t a[4] = {pack_bf16(p[2 * n][0], p[2 * n][1]), pack_bf16(p[2 * n][2], p[2 * n][3]),
                             pack_bf16(p[2 * n + 1][0], p[2 * n + 1][1]), pack_bf16(p[2 * n + 1][2], p[2 * n + 1][3])};
#pragma unroll
      for (uint32_t d = 0; d < D / 16; ++d) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, v_at + (v_turn ^ d * 32) + n * 16 * row_bytes);
        mma_m16n8k16(o[2 * d], a, b[0], b[1]);
        mma_m16n8k16(o[2 * d + 1], a, b[2], b[3]);
      }
    }
}

template <int D>
__global__ __launch_bounds__(threads,
                             TilePlan<D>::ctas) void tile_kernel(const __grid_constant__ AttentionCall<Bf16> call,
                                                                 bool skips_decoded) {
  using P = TilePlan<D>;
  constexpr uint32_t units = P::units;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ uint32_t slots[2][block_keys];
  // The last queries of a sequence have the most keys, so they start first.
  const Tile tile =
      tile_at(call.offsets, call.sequences, call.group, rows, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  const Sequence sequence = sequence_of(call, tile.sequence);
  const int num_rows = sequence.tokens * call.group;
  if (tile.first_row >= num_rows || (skips_decoded && decodes(sequence.tokens, call.group))) return;
  const uint32_t thread = threadIdx.x;
  const int warp = static_cast<int>(thread / 32), lane = static_cast<int>(thread % 32),
            kv_head = static_cast<int>(blockIdx.y);
  const uint32_t q_tile = shared_address(shared), k_tile = q_tile + P::q_bytes, v_tile = k_tile + P::k_bytes;
  float* const total =
      reinterpret_cast<float*>(shared + P::q_bytes + 2 * P::k_bytes) + thread;  // element i at i * threads

  const int tile_end = min(tile.first_row + rows, num_rows);
  const auto position = [&](int row) { return sequence.position + row / call.group; };
  const int last_key = position(tile_end - 1);
  const int block_begin = first_seen(position(tile.first_row), call.window) / block_keys,
            block_end = last_key / block_keys + 1;

  // Finds the cache slots of a block's keys. Keys past the last visible one are replaced by it; their weight is zero.
  const auto find_keys = [&](int block) {
    const int key = min(block * block_keys + static_cast<int>(thread), last_key);
    slots[block % 2][thread] = static_cast<uint32_t>(slot_of(call, sequence, tile.sequence, key));
  };
  // Copies a block's rows of k or v: a thread copies one unit of every `step`-th row.
  constexpr uint32_t step = threads / units;
  const uint32_t unit = thread % units, unit_row = thread / units;
  const bool real = static_cast<int>(unit * 8) < call.dim;
  const auto load_keys = [&](uint32_t to, const Bf16* from, uint32_t row_bytes, int block) {
    if (block < block_end && real) {
      const uint32_t* const at = slots[block % 2] + unit_row;
      const char* const column = reinterpret_cast<const char*>(from + kv_head * call.dim + unit * 8);
#pragma unroll
      for (uint32_t i = 0; i < block_keys; i += step)
        cp_async(unit_at<units>(to, static_cast<int>(unit_row + i), static_cast<int>(unit)),
                 column + uint64_t{at[i]} * row_bytes);
    }
    cp_async_commit();
  };
  const uint32_t k_row_bytes = static_cast<uint32_t>(call.k_stride) * 2,
                 v_row_bytes = static_cast<uint32_t>(call.v_stride) * 2;
  if (call.dim < D)  // the copies below skip columns past the head
    for (uint32_t i = thread * 16; i < P::q_bytes + 2 * P::k_bytes; i += threads * 16)
      *reinterpret_cast<uint4*>(shared + i) = {};
  find_keys(block_begin);
  __syncthreads();  // slots of the first block are found; zeros are written
  if (real) {
#pragma unroll 4
    for (uint32_t i = unit_row; i < rows; i += step) {
      const int row = min(tile.first_row + static_cast<int>(i), num_rows - 1), token = row / call.group;
      cp_async(unit_at<units>(q_tile, static_cast<int>(i), static_cast<int>(unit)),
               call.q + (sequence.begin + token) * call.q_stride +
                   (kv_head * call.group + row - token * call.group) * call.dim + unit * 8);
    }
  }
  load_keys(k_tile, call.k, k_row_bytes, block_begin);

  // The keys that the lane's two rows and the warp's rows see.
  View view{};
  const int warp_row = tile.first_row + warp * 16, warp_end = min(warp_row + 16, tile_end);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp_row + lane / 4 + 8 * r;
    view.last[r] = row < tile_end ? position(row) : -1;
    view.first[r] = row < tile_end ? first_seen(view.last[r], call.window) : 0;
  }
  view.high = -1;
  if (warp_row < warp_end) {
    view.all_high = position(warp_row);
    view.high = position(warp_end - 1);
    view.low = first_seen(view.all_high, call.window);
    view.all_low = first_seen(view.high, call.window);
  }

  float o[D / 8][4], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0}, total_m[2], total_l[2];
#pragma unroll
  for (int d = 0; d < D / 8; ++d)
#pragma unroll
    for (int i = 0; i < 4; ++i) o[d][i] = 0;
  bool merges = false;  // `total` holds the splits before this one
  const auto close_split = [&] {
    if (!merges) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const MergeFactors factors = merge_factors(total_m[r], m[r], call.c);
      m[r] = factors.m;
      l[r] = merged(total_l[r], l[r], factors);
#pragma unroll
      for (int d = 0; d < D / 8; ++d)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) o[d][i] = merged(total[(4 * d + i) * threads], o[d][i], factors);
    }
  };
  // The lane's row addresses in the tiles (layout: mma.cuh).
  constexpr uint32_t row_bytes = 2 * D;
  const auto lane_row = static_cast<uint32_t>(lane % 16), key_row = static_cast<uint32_t>(lane % 8 + lane / 16 * 8);
  const uint32_t turn = static_cast<uint32_t>(lane / 16 ^ lane % 8) * 16,
                 key_turn = static_cast<uint32_t>(lane / 8 % 2 ^ lane % 8) * 16;
  const uint32_t q_at = q_tile + (static_cast<uint32_t>(warp) * 16 + lane_row) * row_bytes,
                 k_at = k_tile + key_row * row_bytes, v_at = v_tile + lane_row * row_bytes;

  // Main loop over key blocks.
  for (int block = block_begin; block < block_end; ++block) {
    const int key = block * block_keys;
    __syncthreads();  // all warps have read v of the block before
    load_keys(v_tile, call.v, v_row_bytes, block);
    if (block + 1 < block_end) find_keys(block + 1);
    cp_async_wait<1>();  // this thread's copies of k have landed
    __syncthreads();     // k has landed; the slots of the next block are found
    // A new split: merge the one before and save the total.
    if (block % split_blocks == 0 && block > block_begin) {
      close_split();
      merges = true;
#pragma unroll
      for (int d = 0; d < D / 8; ++d)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          total[(4 * d + i) * threads] = o[d][i];
          o[d][i] = 0;
        }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        total_m[r] = m[r];
        total_l[r] = l[r];
        m[r] = -INFINITY;
        l[r] = 0;
      }
    }
    // Scores of the block.
    const bool sees = key <= view.high && key + block_keys - 1 >= view.low;
    const bool sees_all = key >= view.all_low && key + block_keys - 1 <= view.all_high;
    float s[16][4];
    if (sees_all)
      score<D, false>(s, q_at, turn, k_at, key_turn, key, view, lane);
    else if (sees)
      score<D, true>(s, q_at, turn, k_at, key_turn, key, view, lane);
    __syncthreads();  // all warps have read k
    load_keys(k_tile, call.k, k_row_bytes, block + 1);
    // Weights; rescale o unless all factors are 1.
    if (sees) {
      float alpha[2];
      soften(s, m, l, alpha, call.c);
      if (!__all_sync(0xffffffffu, alpha[0] == 1 && alpha[1] == 1)) {
#pragma unroll
        for (int d = 0; d < D / 8; ++d)
#pragma unroll
          for (int i = 0; i < 4; ++i) o[d][i] *= alpha[i / 2];
      }
    }
    cp_async_wait<1>();  // this thread's copies of v have landed
    __syncthreads();     // v has landed
    // p . v of the block.
    if (sees_all)
      mix<D, false>(o, s, v_at, turn, key, view);
    else if (sees)
      mix<D, true>(o, s, v_at, turn, key, view);
  }
  cp_async_wait<0>();
  close_split();

#pragma unroll
  // Epilogue: out and lse.
  for (int r = 0; r < 2; ++r) {
    const int row = warp_row + lane / 4 + 8 * r;
    if (row >= tile_end) continue;
    const int64_t token = sequence.begin + row / call.group;
    const int head = kv_head * call.group + row % call.group;
    const float inverse = reciprocal(l[r]);
    Bf16* const out = call.out + token * call.out_stride + head * call.dim;
#pragma unroll
    for (int d = 0; d < D / 8; ++d) {
      const int column = 8 * d + 2 * (lane % 4);
      if (column < call.dim)
        *reinterpret_cast<uint32_t*>(out + column) = pack_bf16(o[d][2 * r] * inverse, o[d][2 * r + 1] * inverse);
    }
    if (call.lse && lane % 4 == 0) call.lse[token * call.lse_stride + head] = log_sum(m[r], l[r], call.scale);
  }
}

void forward(Context& context, const AttentionForward& args) {
  const AttentionCall<Bf16> call = call_of<Bf16>(attention_forward, args);
  HONE_CHECK(reads_in_units(args.q) && reads_in_units(args.k) && reads_in_units(args.v) && reads_in_units(args.out),
             "attention_forward: the rows of q, k, v and out must be 16-byte aligned");
  if (call.tokens == 0) return;
  launch_tiles(context, call);
  check_launch(attention_forward);
}

[[maybe_unused]] const bool added = attention_forward.add(
    {"mma", DeviceKind::cuda, forward, 10, [](const AttentionForward& args) { return has_units(args.q); }});

}  // namespace

void launch_tiles(Context& context, const AttentionCall<Bf16>& call) {
  with_width(call.dim, [&](auto width) {
    using P = TilePlan<width()>;
    allow_shared_memory(tile_kernel<width()>, P::bytes);
    const dim3 grid(static_cast<unsigned>(tile_bound(call.tokens, call.sequences, call.group, rows)),
                    static_cast<unsigned>(call.kv_heads));
    tile_kernel<width()><<<grid, threads, P::bytes, cuda_stream(context)>>>(call, call.table != nullptr);
  });
}

}  // namespace hone::attention
