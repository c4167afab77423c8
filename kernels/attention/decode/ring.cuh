#pragma once
// Decode kernel whose K and V tiles pass through one ring in shared memory: one thread block computes one split of 1024
// keys. decode_sm90.cu fills the ring by TMA, ring.cu by cp.async. Only .cu and .cuh files include it.
//
// Use       calls with few queries per sequence.
// Tile      8 N rows (N = 1, 2) by 1024 keys, in rounds of 512 keys; tiles of 64 columns by 64 keys (32 for D = 128, N
//           = 1).
// Roles     warps 0-3: consumers. Each scores one key block of 128 per round, then owns D / 4 columns of v and of the
//           output and loops over all keys of the round. Warp 4 and following: producers (Source::producers).
// Pipeline  ring of Source's number of stages: one if the grid fits the SMs at one block each ("alone"), else another.
//           One empty mbarrier per stage, more full ones (DecodePlan).
// Smem      ring + weights 8 N KB + row statistics 0.75 N KB + slots 4 KB / box keys (1 to 16) + mbarriers.
// Numerics  numerics.cuh; same bits as decode_cluster_sm90.cu and prefill/tiles.cu.
// PDL       triggers dependents at the start. With SplitPartials::prefetchable the producers load keys of earlier
//           passes before griddep_wait(); else all wait at the start. Consumers wait before they read q.
// Limits    head dimension a multiple of 8 up to 256; rows of K and V 16-byte aligned.
#include <bit>
#include <numeric>

#include "kernels/attention/decode/decode.cuh"
#include "kernels/cuda/mbarrier.cuh"

namespace hone::attention {

inline constexpr int ring_warps = 4, round_keys = ring_warps * block_keys;

// D: head dimension rounded up. N: groups of eight rows. alone: an SM has one thread block, whose ring is longer.
// Source has the ring's bytes: alone_bytes; small_bytes for rings with few registers and a short ring, of which several
// fit an SM; large_bytes for others.
template <int D, int N, bool alone, class S>
struct DecodePlan {
  using Source = S;
  using Barrier = typename Source::Barrier;
  static constexpr int parts = D / 64, columns = D / ring_warps, rows = 8 * N,
                       threads = 32 * (ring_warps + Source::producers);
  // D = 256 with 16 rows needs all registers.
  static constexpr bool small = N == 1 && D <= 128 && !alone;
  static constexpr int ctas = alone || columns * N > 64 ? 1 : small ? Source::small_blocks : 2;
  // A tile has 64 columns. D = 64 spends more time per tile than on its contents, so its tiles are larger; D = 128
  // gains more from a fuller ring.
  static constexpr int tile_keys = D == 128 && small ? 32 : 64, tile_bytes = tile_keys * 128,
                       block_tiles = block_keys / tile_keys;
  static constexpr int stages = (alone   ? Source::alone_bytes
                                 : small ? Source::small_bytes
                                         : Source::large_bytes) /
                                tile_bytes;
  // More full barriers than stages. wait(parity) cannot tell the current phase from the one before last, so a barrier
  // may be reused only if the tile that used it before has landed when a warp waits for the new one. A warp does not
  // wait for tiles that it does not use. But its own previous tile was loaded after all but the latest `stages` tiles
  // had been used, and it lies at most 3 + parts tiles back (or a block-wide barrier came in between).
  static constexpr int barriers = stages + 3 + parts;
};

template <class P>
struct RingShared {
  alignas(1024) char ring[P::stages][P::tile_bytes];
  alignas(1024) char weights[ring_warps][P::rows * block_keys * 2];  // bf16 weights of a key block; rows of 16 units,
                                                                     // unit u of row r at unit u ^ r % 8
  alignas(16) float block_most[split_blocks][P::rows],
      block_alpha[split_blocks][P::rows], block_sum[split_blocks][P::rows];
  typename P::Barrier full[P::barriers], empty[P::stages];
  // Slot of the first key of each box of the split. A box has adjacent keys of a KV block: gcd(block size, 16).
  __device__ uint32_t* slots() { return reinterpret_cast<uint32_t*>(this + 1); }
};
inline uint32_t ring_box_keys(int block_size) { return std::gcd(static_cast<unsigned>(block_size), 16u); }
template <class P>
size_t ring_bytes(uint32_t box_keys) {
  return sizeof(RingShared<P>) + split_keys / box_keys * sizeof(uint32_t);
}

// A round of a split: the keys of up to four blocks, then their values. Producer and consumers number the tiles alike:
// first those of k, by key within a block, then by columns, then by block; then those of v, by key, then by columns.
template <class P>
struct Round {
  int begin, end, high;  // key indices within the split
  uint32_t first = 0;    // index of the round's first tile
  __device__ explicit Round(const DecodeTile& tile) : begin(tile.block_begin * block_keys), high(tile.high) {
    end = min(begin + round_keys, high + 1);
  }
  __device__ bool real() const { return begin <= high; }
  __device__ int blocks() const { return (end - begin + block_keys - 1) / block_keys; }
  __device__ int value_tiles() const { return (end - begin + P::tile_keys - 1) / P::tile_keys; }
  __device__ uint32_t k_tile(int i, int part, int block) const {
    return first + static_cast<uint32_t>((i * P::parts + part) * blocks() + block);
  }
  __device__ uint32_t v_tile(int i, int part) const {
    return k_tile(P::block_tiles, 0, 0) + static_cast<uint32_t>(i * P::parts + part);
  }
  __device__ void next() {
    first = v_tile(value_tiles(), 0);
    begin += round_keys;
    end = min(begin + round_keys, high + 1);
  }
};

// A producer warp: loads its part of all tiles in order. A tile's stage is free when the tile `stages` before has been
// used.
template <class P>
__device__ inline void copy_tiles(RingShared<P>& shared, const AttentionCall<Bf16>& call, const DecodeTile& tile,
                                  const typename P::Source& source, int producer, int prefetchable) {
  uint32_t count = 0;
  RingPlace<P::stages> to;
  const auto copy = [&](bool values, int begin, int part) {
    if (begin + P::tile_keys > prefetchable) hopper::griddep_wait();
    shared.empty[to.stage].wait(to.parity ^ 1);
    source.template copy<P::tile_keys>(shared.ring[to.stage], shared.full[count++ % P::barriers], shared.slots(), call,
                                       tile, values, begin, part, producer);
    to.next();
  };
  for (Round<P> round(tile); round.real(); round.next()) {
#pragma unroll 1
    for (int i = 0; i < P::block_tiles; ++i)
      for (int part = 0; part < P::parts; ++part)
        for (int block = 0; block < round.blocks(); ++block)
          copy(false, round.begin + block * block_keys + i * P::tile_keys, part);
    for (int i = 0; i < round.value_tiles(); ++i)
      for (int part = 0; part < P::parts; ++part) copy(true, round.begin + i * P::tile_keys, part);
  }
}

// o += p . v over a tile's keys. p_at: address of the lane's row of p; `p_turn`: offset of the tile's keys in it;
// `unit`: first unit of the warp's columns. If `whole` is false the tile has masked keys, which may hold anything; only
// [low, high] count.
template <bool whole, int tile_keys, int columns, int N>
__device__ inline void mix_tile(float (&o)[columns / 16][N][4], uint32_t p_at, uint32_t p_turn, uint32_t values,
                                uint32_t unit, uint32_t lane, int low, int high) {
#pragma unroll
  for (uint32_t i = 0; i < tile_keys / 16; ++i) {
    uint32_t p[N][2], real[2];  // real: masks of keys 2 (lane % 4) and the next, and of those 8 further
#pragma unroll
    for (uint32_t e = 0; e < N; ++e)
      ldmatrix_x4(p[e], p_at + e * 8 * 256 + ((lane / 8 % 2 ^ lane % 8) * 16 ^ (p_turn + i * 32)));
    if constexpr (!whole) {
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) {
        const int key = static_cast<int>(16 * i + 8 * j + lane % 4 * 2);
        real[j] = (key >= low && key <= high ? 0xffffu : 0) | (key + 1 >= low && key + 1 <= high ? 0xffff0000u : 0);
      }
    }
#pragma unroll
    for (uint32_t t = 0; t < columns / 16; ++t) {
      uint32_t a[4];
      ldmatrix_x4_trans(
          a, values + (16 * i + lane / 16 * 8 + lane % 8) * 128 + ((unit + 2 * t + lane / 8 % 2) ^ lane % 8) * 16);
      if constexpr (!whole) {
        a[0] &= real[0];
        a[1] &= real[0];
        a[2] &= real[1];
        a[3] &= real[1];
      }
#pragma unroll
      for (int e = 0; e < N; ++e) mma_m16n8k16(o[t][e], a, p[e][0], p[e][1]);
    }
  }
}

template <int D, int N, bool alone, class Source>
__global__ __launch_bounds__(
    DecodePlan<D, N, alone, Source>::threads,
    DecodePlan<D, N, alone, Source>::ctas) void ring_kernel(const __grid_constant__ AttentionCall<Bf16> call,
                                                            const SplitPartials partials,
                                                            const __grid_constant__ Source source) {
  using P = DecodePlan<D, N, alone, Source>;
  constexpr int columns = P::columns, parts = P::parts;
  extern __shared__ __align__(1024) char memory[];
  RingShared<P>& shared = *reinterpret_cast<RingShared<P>*>(memory);
  const uint32_t thread = threadIdx.x, lane = thread % 32;
  const int warp = uniform(static_cast<int>(thread / 32)), s = static_cast<int>(blockIdx.y),
            z = static_cast<int>(blockIdx.z);

  hopper::griddep_launch_dependents();
  if (!partials.prefetchable) hopper::griddep_wait();
  const Sequence sequence = sequence_of(call, s);
  // One thread initializes all barriers of a kind: a lane each compiles to a loop over the lanes.
  if (thread == 0) {
#pragma unroll
    for (auto& barrier : shared.full) barrier.init(Source::full_arrivals);
  }
  if (thread == 32) {
#pragma unroll
    for (auto& barrier : shared.empty) barrier.init(32 * ring_warps);
  }
  source.prepare();
  if (warp >= ring_warps) {
    const int split_begin = split_of(partials, z, P::rows) * split_keys;
    for (int i = static_cast<int>(thread) - 32 * ring_warps; i < split_keys >> source.box_shift;
         i += 32 * Source::producers)
      shared.slots()[i] = static_cast<uint32_t>(
          slot_of(call, sequence, s, min(split_begin + (i << source.box_shift), partials.table_keys - 1)));
  }
  __syncthreads();  // mbarriers are initialized, slots are found
  DecodeTile tile;
  if (!find_tile(tile, call, partials, sequence, static_cast<int>(blockIdx.x), s, z, P::rows))
    return hopper::griddep_wait();
  if (warp >= ring_warps)
    return copy_tiles<P>(shared, call, tile, source, warp - ring_warps, prefetchable_end(partials, tile));

  hopper::griddep_wait();  // q is written
  uint32_t q[N][D / 16][2];
  load_queries<D, N>(q, call, tile, lane);
  // Calls body(address of tile i) once the tile has landed; then each lane releases its stage `times` times: a stage
  // expects releases by the lanes of four warps, and only some warps use a tile.
  const auto use = [&](uint32_t i, uint32_t times, auto body) {
    const uint32_t place = i % P::stages;
    shared.full[i % P::barriers].wait(i / P::barriers % 2);  // the tile has landed
    body(shared_address(shared.ring[place]));
    shared.empty[place].arrive(times);
  };
  const int column = warp * columns, part = column / 64;
  const uint32_t k_at = lane % 16 * 128, k_turn = (lane / 16 ^ lane % 8) * 16, weights = shared_address(shared.weights),
                 row = row_of(lane);
  float o[columns / 16][N][4] = {};
  int before = 0;  // key blocks of earlier rounds
#pragma unroll 1
  for (Round<P> round(tile); round.real(); round.next(), before += ring_warps) {
    const bool scores = warp < round.blocks();
    const int block = before + warp;
    // Keys lane / 4 and lane / 4 + 8 of 16 n, rows 2 (lane % 4) and the next; after exchange(): the lane's row.
    float score[8][N][4], most[N];
    // Scores of the warp's key block.
    if (scores) {
#pragma unroll
      for (int i = 0; i < P::block_tiles; ++i) {
#pragma unroll
        for (int n = 0; n < P::tile_keys / 16; ++n)
#pragma unroll
          for (int j = 0; j < 4 * N; ++j) score[i * (P::tile_keys / 16) + n][j / 4][j % 4] = 0;
#pragma unroll
        for (int p = 0; p < parts; ++p)
          use(round.k_tile(i, p, warp), ring_warps, [&](uint32_t keys) {
#pragma unroll
            for (int d = 0; d < 4; ++d)
#pragma unroll
              for (int n = 0; n < P::tile_keys / 16; ++n) {
                uint32_t a[4];
                ldmatrix_x4(a,
                            keys + static_cast<uint32_t>(n) * 2048 + k_at + (k_turn ^ static_cast<uint32_t>(d) * 32));
#pragma unroll
                for (int e = 0; e < N; ++e)
                  mma_m16n8k16(score[i * (P::tile_keys / 16) + n][e], a, q[e][4 * p + d][0], q[e][4 * p + d][1]);
              }
          });
#pragma unroll
        for (int n = 0; n < P::tile_keys / 16; ++n) exchange<N>(score[i * (P::tile_keys / 16) + n], lane);
      }
      mask_keys<8, N>(score, tile.split_begin + round.begin + warp * block_keys, call, tile, lane);
#pragma unroll
      for (int e = 0; e < N; ++e) {
        most[e] = -INFINITY;
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) most[e] = fmaxf(most[e], score[n][e][i]);
        most[e] = row_max(most[e]);
        if (lane < 8) shared.block_most[block][8 * e + static_cast<int>(row)] = most[e];
      }
    }
    // All four consumer warps: block_most is complete, and the weights of the round before have been read.
    named_barrier_sync(1, 32 * ring_warps);

    // Weights and row sums of the warp's key block.
    if (scores) {
#pragma unroll
      for (int e = 0; e < N; ++e) {
        const int r = 8 * e + static_cast<int>(row);
        float m = -INFINITY, sum = 0;
#pragma unroll
        for (int b = 0; b < split_blocks - 1; ++b)
          if (b < block) m = fmaxf(m, shared.block_most[b][r]);
        const float base = base_of(fmaxf(m, most[e])), shift = shift_of(base, call.c);
        if (lane < 8) shared.block_alpha[block][r] = rescaling(m, base, call.c);
        const uint32_t to = weights + static_cast<uint32_t>(warp * P::rows + r) * 256 + lane / 8 * 4;
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; i += 2) {
            const float a = weight(score[n][e][i], call.c, shift), b = weight(score[n][e][i + 1], call.c, shift);
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + ((row ^ static_cast<uint32_t>(2 * n + i / 2)) * 16)),
                         "r"(pack_bf16(a, b))
                         : "memory");
            sum += a;
            sum += b;
          }
        sum = row_sum(sum);
        if (lane < 8) shared.block_sum[block][r] = sum;
      }
    }
    // All four consumer warps: weights and block_alpha of the round are complete.
    named_barrier_sync(1, 32 * ring_warps);

#pragma unroll 1
    // p . v over all keys of the round, in ascending order.
    for (int i = 0; i < round.value_tiles(); ++i)
      use(round.v_tile(i, part), parts, [&](uint32_t values) {
        const int begin = round.begin + i * P::tile_keys, low = tile.low - begin, high = tile.high - begin;
        const uint32_t p_at =
            weights + static_cast<uint32_t>(i / P::block_tiles) * sizeof shared.weights[0] + lane % 8 * 256;
        const auto p_turn = static_cast<uint32_t>(i % P::block_tiles * P::tile_keys * 2),
                   unit = static_cast<uint32_t>(column % 64 / 8);
        if (p_turn == 0) rescale<columns, N>(o, shared.block_alpha[before + i / P::block_tiles], lane);
        if (low <= 0 && high >= P::tile_keys - 1)
          mix_tile<true, P::tile_keys, columns, N>(o, p_at, p_turn, values, unit, lane, low, high);
        else
          mix_tile<false, P::tile_keys, columns, N>(o, p_at, p_turn, values, unit, lane, low, high);
      });
  }

  // Epilogue: l and m of the split, then the output or the partial result.
  const auto l_of = [&](int r) {
    float l = 0;
#pragma unroll
    for (int b = 0; b < split_blocks; ++b)
      if (b < tile.num_blocks) l = fmaf(l, shared.block_alpha[b][r], shared.block_sum[b][r]);
    return l;
  };
  const auto m_of = [&](int r) {
    float m = -INFINITY;
    for (int b = 0; b < tile.num_blocks; ++b) m = fmaxf(m, shared.block_most[b][r]);
    return m;
  };
  write_rows<columns, N>(o, call, partials, tile, column, lane, m_of, l_of);
}

// Runs launch(n, alone, width) as template arguments: the kernel of a call whose thread blocks compute `octets` groups
// of eight rows.
template <class Launch>
void with_ring(const AttentionCall<Bf16>& call, const SplitPartials& partials, int octets, Launch launch) {
  with_width(call.dim, [&](auto width) {
    const auto run = [&](auto n) {
      const int64_t blocks =
          int64_t{call.kv_heads} * call.sequences * partials.splits * ((partials.rows + 8 * n() - 1) / (8 * n()));
      if (blocks <= num_sms())
        launch(width, n, std::true_type{});
      else
        launch(width, n, std::false_type{});
    };
    if (octets == 1)
      run(std::integral_constant<int, 1>{});
    else
      run(std::integral_constant<int, 2>{});
  });
}
template <int D, int N, bool alone, class Source>
void launch_ring(cudaStream_t stream, const AttentionCall<Bf16>& call, const SplitPartials& partials,
                 const Source& source) {
  using P = DecodePlan<D, N, alone, Source>;
  const auto kernel = ring_kernel<D, N, alone, Source>;
  const size_t bytes = ring_bytes<P>(1u << source.box_shift);
  allow_shared_memory(kernel, bytes);
  const int tiles = (partials.rows + P::rows - 1) / P::rows;
  const dim3 grid(static_cast<unsigned>(call.kv_heads), static_cast<unsigned>(call.sequences),
                  static_cast<unsigned>(partials.splits * tiles));
  launch_pdl(stream, kernel, grid, P::threads, static_cast<int>(bytes), 1, call, partials, source);
}

}  // namespace hone::attention
