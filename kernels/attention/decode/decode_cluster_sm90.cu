// attention_paged for few queries, few sequences and bf16 on Hopper: a cluster of eight thread blocks computes one
// split of 1024 keys.
//
// Use       calls with too few splits to fill the SMs with one block per split (limit in paged.cu).
// Tile      8 N rows (N = 1, 2) by 1024 keys per cluster. Block r scores key block r (128 keys) and owns 16 columns of
//           v (32 for D = 256); for D = 64 only blocks 0-3 own columns.
// Roles     8 warps. Each scores 16 keys; all threads copy. Warp 1 sends the row sums. Warp 0 computes p . v.
// Pipeline  none: all keys of the block and all its columns of v are copied at once (cp.async, two groups).
// Smem      dynamic: K 256 * D bytes, V 32 KB (64 KB for D = 256), p 16 N KB. Static: 9 KB (N = 1) or 14 KB (N = 2). In
//           all 73 KB (D = 64, N = 1) to 174 KB (D = 256, N = 2).
// Numerics  numerics.cuh; same bits as decode_sm90.cu and prefill/tiles.cu. Blocks of keys are added in ascending
//           order.
// PDL       triggers dependents at the start. With SplitPartials::prefetchable it reads lengths and block table and
//           copies earlier keys and values before griddep_wait(); else it waits at the start.
// Limits    sm_90; head dimension a multiple of 8 up to 256. Blocks exchange maxima, weights and sums by st.async,
//           which counts at an mbarrier of the receiver: a cluster barrier would also wait for the copies.
#include "kernels/attention/decode/decode.cuh"
#include "kernels/cuda/hopper.cuh"

namespace hone::attention {
namespace {

using hopper::map_to_cluster_block, hopper::send;

constexpr int warps = 8, threads = 32 * warps, ranks = split_blocks, v_keys = 32;
static_assert(block_keys == 16 * warps);  // a warp scores 16 keys

template <int D, int N>  // D: head dimension rounded up. N: groups of eight rows
struct ClusterPlan {
  static constexpr uint32_t units = D / 8, columns = D <= 128 ? 16 : 32,
                            mixers = D / columns;  // ranks that own columns of v
  static constexpr uint32_t k_bytes = 2 * block_keys * D, v_bytes = 2 * split_keys * columns,
                            p_tile = 2 * 8 * N * block_keys;
  static constexpr uint32_t bytes = k_bytes + v_bytes + split_blocks * p_tile;
};

// Finds the cache slots of a split's keys, in two steps with a barrier after each. find_slots() reads the table before
// it is known how many entries count. hide_slots() replaces masked keys by the first visible one; their weight is zero.
__device__ inline void find_slots(uint32_t* slots, const AttentionCall<Bf16>& call, int s, int split_begin,
                                  int table_keys) {
  const int32_t* const table = call.table + s * call.table_stride;
  const auto at = [&](int i) { return min(split_begin + i * threads + static_cast<int>(threadIdx.x), table_keys - 1); };
  if (call.block_shift >= 0) {
#pragma unroll
    for (int i = 0; i < split_keys / threads; ++i) {
      const int key = at(i), block = key >> call.block_shift;
      slots[i * threads + threadIdx.x] =
          static_cast<uint32_t>((table[block] << call.block_shift) + key - (block << call.block_shift));
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < split_keys / threads; ++i) {
      const int key = at(i), block = key / call.block_size;
      slots[i * threads + threadIdx.x] =
          static_cast<uint32_t>(table[block] * call.block_size + key - block * call.block_size);
    }
  }
}
__device__ inline void hide_slots(uint32_t* slots, const DecodeTile& tile) {
#pragma unroll
  for (int i = 0; i < split_keys / threads; ++i) {
    const int key = i * threads + static_cast<int>(threadIdx.x);
    if (key < tile.low || key > tile.high) slots[key] = slots[tile.low];
  }
}

// Address of a unit in a block's columns of v: rows of 2 or 4 units of 16 bytes, placed so that eight rows of a unit
// touch each bank once.
template <int columns>
__device__ inline uint32_t value_at(uint32_t values, uint32_t row, uint32_t unit) {
  constexpr uint32_t units = columns / 8, turn = 8 / units;
  return values + (row * units + (unit ^ row / turn % units)) * 16;
}
// o += p . v over 32 keys. p_at: address of the lane's row of p (256 bytes per row). `quarter`: which 32 keys of the
// block. o has columns lane / 4 and lane / 4 + 8 of 16, and rows 2 (lane % 4) and 2 (lane % 4) + 1.
template <int columns, int N>
__device__ inline void mix(float (&o)[columns / 16][N][4], uint32_t p_at, uint32_t quarter, uint32_t values,
                           uint32_t lane) {
  uint32_t p[N][4];
#pragma unroll
  for (uint32_t e = 0; e < N; ++e) ldmatrix_x4(p[e], p_at + e * 8 * 256 + ((lane / 8 ^ lane % 8) * 16 ^ quarter * 64));
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i)
#pragma unroll
    for (uint32_t t = 0; t < columns / 16; ++t) {
      uint32_t a[4];
      ldmatrix_x4_trans(a,
                        value_at<columns>(values, lane / 16 * 8 + lane % 8, 2 * t + lane / 8 % 2) + i * columns * 32);
#pragma unroll
      for (int e = 0; e < N; ++e) mma_m16n8k16(o[t][e], a, p[e][2 * i], p[e][2 * i + 1]);
    }
}

template <int D, int N>
__global__ __cluster_dims__(ranks, 1, 1)
    __launch_bounds__(threads) void cluster_kernel(const __grid_constant__ AttentionCall<Bf16> call,
                                                   const SplitPartials partials) {
  using P = ClusterPlan<D, N>;
  constexpr uint32_t units = P::units, columns = P::columns, rows = 8 * N;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ __align__(16) uint32_t slots[split_keys];
  __shared__ __align__(16) float weights[rows][block_keys + 4], warp_most[warps][rows];
  __shared__ __align__(16) float block_most[split_blocks][rows], block_alpha[split_blocks][rows],
      block_sum[split_blocks][rows];
  __shared__ hopper::Barrier most_there, weights_there, sums_there;
  const uint32_t thread = threadIdx.x, lane = thread % 32, rank = blockIdx.x % ranks;
  const int warp = static_cast<int>(thread / 32), s = static_cast<int>(blockIdx.y), z = static_cast<int>(blockIdx.z);

  hopper::griddep_launch_dependents();
  if (!partials.prefetchable) hopper::griddep_wait();
  const Sequence sequence = sequence_of(call, s);
  find_slots(slots, call, s, split_of(partials, z, rows) * split_keys, partials.table_keys);
  DecodeTile tile;
  if (!find_tile(tile, call, partials, sequence, static_cast<int>(blockIdx.x / ranks), s, z, rows))
    return hopper::griddep_wait();
  const uint32_t used = static_cast<uint32_t>(tile.end - tile.first);  // rows whose weights are sent
  if (thread == 0) {
    const uint32_t blocks = static_cast<uint32_t>(tile.num_blocks);
    most_there.init(1);
    weights_there.init(1);
    sums_there.init(1);
    hopper::fence_mbarrier_init();
    most_there.arrive_expect_tx(blocks * rows * 4);
    weights_there.arrive_expect_tx(blocks * used * 2 * block_keys);
    sums_there.arrive_expect_tx(blocks * rows * 4);
  }
  // Cluster barrier, part 1. Part 2 waits before the first send: the mbarriers of all blocks are then initialized.
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  const bool scores = static_cast<int>(rank) < tile.num_blocks, mixes = rank < P::mixers;
  const uint32_t k_tile = shared_address(shared), v_tile = k_tile + P::k_bytes, p_tiles = v_tile + P::v_bytes;
  if (call.dim < D)  // the copies below skip columns past the head
    for (uint32_t i = thread * 16; i < P::k_bytes + P::v_bytes; i += threads * 16)
      *reinterpret_cast<uint4*>(shared + i) = {};
  __syncthreads();  // slots are found; zeros are written
  hide_slots(slots, tile);
  __syncthreads();  // masked slots are replaced

  // Copy the warp's 16 keys of this rank's key block (group 1), then this rank's columns of all values (group 2).
  const int part_begin =
      (tile.block_begin + static_cast<int>(rank)) * block_keys + 16 * warp;  // key index within the split
  constexpr uint32_t k_step = 32 / units;
  const uint32_t k_lane = lane % units, k_row = lane / units, k_bytes = static_cast<uint32_t>(call.k_stride) * 2;
  const uint32_t k_warp = k_tile + static_cast<uint32_t>(16 * warp) * units * 16;
  const int prefetchable = prefetchable_end(partials, tile);
  if (part_begin + 16 > prefetchable) hopper::griddep_wait();  // these keys may be written by the kernel before
  if (scores && static_cast<int>(k_lane * 8) < call.dim) {
    const char* const from = reinterpret_cast<const char*>(call.k + tile.kv_head * call.dim + k_lane * 8);
#pragma unroll
    for (uint32_t i = 0; i < 16; i += k_step)
      cp_async(k_warp + (k_row + i) * units * 16 + ((k_lane ^ k_row ^ i % 8) * 16),
               from + uint64_t{slots[part_begin + k_row + i]} * k_bytes);
  }
  cp_async_commit();
  constexpr uint32_t v_units = columns / 8, v_step = threads / v_units;
  const uint32_t v_lane = thread % v_units, v_row = thread / v_units,
                 v_bytes = static_cast<uint32_t>(call.v_stride) * 2;
  const int column = static_cast<int>(rank * columns), v_column = column + static_cast<int>(v_lane * 8),
            num_keys = tile.num_blocks * block_keys;
  uint32_t v_next = v_row;
  const auto copy_values = [&](int end) {
    if (!mixes || v_column >= call.dim) return;
    const char* const from = reinterpret_cast<const char*>(call.v + tile.kv_head * call.dim + v_column);
    const uint32_t* const at = slots + tile.block_begin * block_keys;
#pragma unroll 4
    for (; static_cast<int>(v_next) < end; v_next += v_step)
      cp_async(value_at<columns>(v_tile, v_next, v_lane), from + uint64_t{at[v_next]} * v_bytes);
  };
  copy_values(min(prefetchable - tile.block_begin * block_keys, num_keys));
  hopper::griddep_wait();  // q and the last keys are written
  uint32_t q[N][D / 16][2];
  load_queries<D, N>(q, call, tile, lane);
  copy_values(num_keys);
  cp_async_commit();

  float score[1][N][4] = {};
  // Scores of the warp's 16 keys, after its own copies have landed.
  if (scores) {
    cp_async_wait<1>();
    __syncwarp();  // the copies of all lanes have landed
    const uint32_t k_at = k_warp + lane % 16 * units * 16, k_at_turn = (lane / 16 ^ lane % 8) * 16;
#pragma unroll
    for (uint32_t d = 0; d < D / 16; ++d) {
      uint32_t a[4];
      ldmatrix_x4(a, k_at + (k_at_turn ^ d * 32));
#pragma unroll
      for (int e = 0; e < N; ++e) mma_m16n8k16(score[0][e], a, q[e][d][0], q[e][d][1]);
    }
    exchange<N>(score[0], lane);
    mask_keys<1, N>(score, tile.split_begin + part_begin, call, tile, lane);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float most = row_max(fmaxf(fmaxf(score[0][e][0], score[0][e][1]), fmaxf(score[0][e][2], score[0][e][3])));
      if (lane < 8) warp_most[warp][8 * e + row_of(lane)] = most;
    }
  }
  // Cluster barrier, part 2: the mbarriers of all blocks are initialized.
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  __syncthreads();  // maxima of all warps are in warp_most
  // Send the block's row maxima to all ranks.
  if (scores && thread < ranks * rows) {
    const uint32_t row = thread % rows, to = thread / rows;
    float most = warp_most[0][row];
#pragma unroll
    for (int w = 1; w < warps; ++w) most = fmaxf(most, warp_most[w][row]);
    send(map_to_cluster_block(to, shared_address(&block_most[rank][row])), most,
         map_to_cluster_block(to, shared_address(&most_there.word)));
  }
  most_there.wait(0);  // the maxima of all key blocks have arrived

  // The maximum of a row up to and including a key block (x), and up to the block before (y).
  const auto most_up_to = [&](uint32_t block, uint32_t row) {
    float2 m{-INFINITY, -INFINITY};
#pragma unroll
    for (uint32_t b = 0; b < split_blocks; ++b)
      if (b <= block) m = {fmaxf(m.x, block_most[b][row]), m.x};
    return m;
  };
  // Weights of the warp's keys, then send them to the ranks that own columns.
  if (scores) {
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const uint32_t row = 8 * e + row_of(lane);
      const float shift = shift_of(base_of(most_up_to(rank, row).x), call.c);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        *reinterpret_cast<float2*>(&weights[row][16 * warp + 8 * i + static_cast<int>(lane / 8 * 2)]) = {
            weight(score[0][e][2 * i], call.c, shift), weight(score[0][e][2 * i + 1], call.c, shift)};
    }
    __syncwarp();  // the warp's weights are in shared memory
    // A lane sends eight adjacent weights of a row. With eight rows (N = 1), half of the lanes serve every other rank.
    constexpr uint32_t lanes = 2 * rows, together = 32 / lanes;
    const uint32_t row = lane % rows, unit = static_cast<uint32_t>(2 * warp) + lane / rows % 2;
    const float4* const from = reinterpret_cast<const float4*>(&weights[row][8 * unit]);
    const float4 a = from[0], b = from[1];
    const uint4 eight = {pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)};
    const uint32_t at = p_tiles + rank * P::p_tile + row * 256 + (unit ^ row % 8) * 16;
#pragma unroll
    for (uint32_t to = lane / lanes; to < P::mixers; to += together)
      if (row < used)
        send(map_to_cluster_block(to, at), eight, map_to_cluster_block(to, shared_address(&weights_there.word)));
  }
  if (const uint32_t block = thread / rows, row = thread % rows; mixes && static_cast<int>(block) < tile.num_blocks) {
    const float2 m = most_up_to(block, row);
    block_alpha[block][row] = rescaling(m.y, base_of(m.x), call.c);
  }
  cp_async_wait<0>();
  __syncthreads();  // values have landed; weights and block_alpha are complete

  // Warp 1 sends the row sums while the other ranks compute p . v.
  if (scores && warp == 1) {
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const uint32_t row = 8 * e + row_of(lane);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < block_keys; j += 8) {
        const float2 two = *reinterpret_cast<const float2*>(&weights[row][j + static_cast<int>(lane / 8 * 2)]);
        sum += two.x;
        sum += two.y;
      }
      sum = row_sum(sum);
      if (lane < 8)
#pragma unroll 1
        for (uint32_t to = 0; to < P::mixers; ++to)
          send(map_to_cluster_block(to, shared_address(&block_sum[rank][row])), sum,
               map_to_cluster_block(to, shared_address(&sums_there.word)));
    }
  }
  // Warp 0: p . v over the key blocks in ascending order, then the output.
  if (warp > 0 || !mixes) return;
  weights_there.wait(0);  // the weights of all key blocks have arrived
  float o[columns / 16][N][4] = {};
#pragma unroll 2
  for (int stage = 0; stage < num_keys / v_keys; ++stage) {
    if (stage % 4 == 0) rescale<columns, N>(o, block_alpha[stage / 4], lane);
    mix<columns, N>(o, p_tiles + static_cast<uint32_t>(stage / 4) * P::p_tile + lane % 8 * 256,
                    static_cast<uint32_t>(stage % 4), v_tile + static_cast<uint32_t>(stage) * 2 * v_keys * columns,
                    lane);
  }
  sums_there.wait(0);  // the row sums of all key blocks have arrived
  const auto m_of = [&](int row) {
    return most_up_to(static_cast<uint32_t>(tile.num_blocks - 1), static_cast<uint32_t>(row)).x;
  };
  const auto l_of = [&](int row) {
    float l = 0;
#pragma unroll
    for (int b = 0; b < split_blocks; ++b)
      if (b < tile.num_blocks) l = fmaf(l, block_alpha[b][row], block_sum[b][row]);
    return l;
  };
  write_rows<columns, N>(o, call, partials, tile, column, lane, m_of, l_of);
}

}  // namespace

void launch_decode_cluster(cudaStream_t stream, const AttentionCall<Bf16>& call, const SplitPartials& partials,
                           int eights) {
  with_width(call.dim, [&](auto width) {
    const auto run = [&](auto n) {
      constexpr size_t bytes = ClusterPlan<width(), n()>::bytes;
      allow_shared_memory(cluster_kernel<width(), n()>, bytes);
      const int tiles = (partials.rows + 8 * n() - 1) / (8 * n());
      const dim3 grid(static_cast<unsigned>(ranks * call.kv_heads), static_cast<unsigned>(call.sequences),
                      static_cast<unsigned>(partials.splits * tiles));
      launch_pdl(stream, cluster_kernel<width(), n()>, grid, threads, static_cast<int>(bytes), 1, call, partials);
    };
    if (eights == 1)
      run(std::integral_constant<int, 1>{});
    else
      run(std::integral_constant<int, 2>{});
  });
}

}  // namespace hone::attention
