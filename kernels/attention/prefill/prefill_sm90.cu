// attention_forward for bf16 on Hopper, with wgmma and TMA.
//
// Use       packed sequences, bf16, head dimension 64 or 128.
// Tile      128 rows (tokens of one sequence, one head) by key blocks of 128. Persistent: one block per SM claims tiles
//           from a list, heaviest first (tile_list.cuh).
// Roles     384 threads. Warpgroup 0: thread 0 issues TMA loads, thread 32 claims tiles. Warpgroups 1 and 2: consumers
//           of 64 rows each, q in registers. A warpgroup's next q . k runs while it computes p . v of the block before;
//           the wgmma of one warpgroup overlaps the softmax of the other.
// Pipeline  4 (dim 64) or 2 (dim 128) smem stages of K and as many of V, each with full and empty mbarriers; 1 of q; 1
//           of the tile.
// Smem      dim 64: q 16 KB + K, V 4 * 32 KB + totals 32 KB = 176 KB. dim 128: 32 + 2 * 64 + 64 = 224 KB. Plus
//           mbarriers.
// Numerics  numerics.cuh. The totals of earlier splits are in shared memory.
// PDL       initializes mbarriers before griddep_wait(), so the prologue overlaps the making of the list; does not
//           trigger dependents.
// Limits    sm_90a; rows of q, k, v and out 16-byte aligned.
#include "kernels/attention/prefill/softmax_sm90.cuh"
#include "kernels/attention/prefill/tile_list.cuh"
#include "kernels/attention/wgmma.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace hone {
namespace {

using namespace attention;
using namespace sm90;

template <int Dim_, int Consumers_, int Stages_, int Registers_, int ProducerRegisters_>
struct PrefillPlan {
  static constexpr int dim = Dim_, consumers = Consumers_, stages = Stages_, registers = Registers_,
                       producer_registers = ProducerRegisters_;
  static constexpr int rows = 64 * consumers, threads = 128 * (consumers + 1), chunks = dim / 64, outputs = dim / 2;
  static constexpr int q_chunk = rows * 128, kv_chunk = block_keys * 128;  // bytes of 64 columns
  static constexpr int q_bytes = chunks * q_chunk, kv_bytes = chunks * kv_chunk;
};
using Plan64 = PrefillPlan<64, 2, 4, 240, 24>;
using Plan128 = PrefillPlan<128, 2, 2, 240, 24>;

template <class P>
struct Shared {
  alignas(1024) char q[P::q_bytes];
  alignas(1024) char k[P::stages][P::kv_bytes];
  alignas(1024) char v[P::stages][P::kv_bytes];
  float4 total[P::consumers][P::outputs / 4][128];  // each thread uses its own elements only
  Barrier tile_full, tile_empty, q_full, q_empty, k_full[P::stages], k_empty[P::stages], v_full[P::stages],
      v_empty[P::stages];
  ListedTile tile;
};

struct Arguments {
  AttentionCall<__nv_bfloat16> call;
  TileList list;
  int heads_together, window;  // without a window, `window` is a large number
};

// The key blocks that a tile's rows see.
struct Blocks {
  int first, end;
};
__device__ Blocks blocks_of(const ListedTile& tile, int rows, int window) {
  const int last_row = min(tile.row + rows, tile.length) - 1;
  return {first_seen(tile.row, window) / block_keys, last_row / block_keys + 1};
}

// Scheduler, one thread: claims tiles from the list, one ahead of the tile that is computed.
template <class P>
__device__ void claim_tiles(Shared<P>& shared, const Arguments& a) {
  const int count = *a.list.count;
  for (uint32_t parity = 0;; parity ^= 1) {
    shared.tile_empty.wait(parity ^ 1);  // the producer and 8 consumer warps have read the tile before
    const ListedTile tile = listed_tile(a.list, a.call, count, a.heads_together, atomicAdd(a.list.claimed, 1));
    shared.tile = tile;
    shared.tile_full.arrive();
    if (tile.row < 0) return;
  }
}

// Producer, one thread: issues the loads. K of a tile's first block is loaded before q is free.
template <class P>
__device__ void copy_tiles(Shared<P>& shared, const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v,
                           const Arguments& a) {
  sm90::RingPlace<P::stages> to;
  for (uint32_t parity = 0;; parity ^= 1) {
    shared.tile_full.wait(parity);  // the scheduler has published a tile
    const ListedTile tile = shared.tile;
    shared.tile_empty.arrive();
    if (tile.row < 0) return;
    const Blocks blocks = blocks_of(tile, P::rows, a.window);
    const int head = tile.head / a.call.group;
#pragma unroll 1
    for (int block = blocks.first; block < blocks.end; ++block, to.next()) {
      const int token = tile.begin + block * block_keys;
      // k_empty, q_empty, v_empty: 8 consumer warps have read the buffer.
      shared.k_empty[to.stage].wait(to.parity ^ 1);
      shared.k_full[to.stage].arrive_expect_tx(P::kv_bytes);
      for (int chunk = 0; chunk < P::chunks; ++chunk)
        tma_load(shared.k[to.stage] + chunk * P::kv_chunk, k, shared.k_full[to.stage], chunk * 64, head, token);
      if (block == blocks.first) {
        shared.q_empty.wait(parity ^ 1);
        shared.q_full.arrive_expect_tx(P::q_bytes);
        for (int chunk = 0; chunk < P::chunks; ++chunk)
          tma_load(shared.q + chunk * P::q_chunk, q, shared.q_full, chunk * 64, tile.head, tile.begin + tile.row);
      }
      shared.v_empty[to.stage].wait(to.parity ^ 1);
      shared.v_full[to.stage].arrive_expect_tx(P::kv_bytes);
      for (int chunk = 0; chunk < P::chunks; ++chunk)
        tma_load(shared.v[to.stage] + chunk * P::kv_chunk, v, shared.v_full[to.stage], chunk * 64, head, token);
    }
  }
}

// Loads a warpgroup's 64 rows of q as A operands.
template <class P>
__device__ void load_queries(uint32_t (&q)[P::dim / 4], const char* rows) {
  const int lane = static_cast<int>(threadIdx.x % 32), row = static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane % 16;
#pragma unroll
  for (int step = 0; step < P::dim / 16; ++step)
    ldmatrix_x4(q + 4 * step,
                rows + step / 4 * P::q_chunk + row * 128 + ((step % 4 * 32 + lane / 16 * 16) ^ lane % 8 * 16));
}

// Queues s = q . k of one key block.
template <class P>
__device__ void queue_scores(float (&s)[64], uint32_t (&q)[P::dim / 4], uint64_t k) {
  wgmma_fence_registers(s);
  wgmma_fence_registers(q);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < P::dim / 16; ++step)
    wgmma_mn_major(s, q + 4 * step, further(k, step / 4 * P::kv_chunk + step % 4 * 32), step > 0);
  wgmma_commit();
}

// Queues o += p . v of one key block; from zero at the start of a split.
template <class P>
__device__ void queue_values(float (&o)[P::outputs], uint32_t (&p)[32], uint64_t v, bool add) {
  wgmma_fence_registers(o);
  wgmma_fence_registers(p);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 8; ++step) wgmma_rs(o, p + 4 * step, further(v, step * 2048), step > 0 || add);
  wgmma_commit();
}

// Zeroes the values past the end of the sequence: the tile may hold those of the next one. Each warpgroup clears for
// itself.
template <class P>
__device__ void clear_values(char* v, int keys, int consumer) {
  for (int chunk = 0; chunk < P::chunks; ++chunk)
    for (int i = keys * 8 + static_cast<int>(threadIdx.x % 128); i < block_keys * 8; i += 128)
      reinterpret_cast<float4*>(v + chunk * P::kv_chunk)[i] = make_float4(0, 0, 0, 0);
  fence_async_proxy();
  named_sync(1 + consumer, 128);  // the warpgroup's zeros are written before its wgmma reads them
}

// Stores the outputs of a lane's two rows. The four lanes of a row exchange elements until each has 16 contiguous
// bytes.
template <class P>
__device__ void store(const Arguments& a, const ListedTile& tile, int row, const float (&o)[P::outputs],
                      const SoftmaxRows& rows) {
  const int lane = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const RowEnd last = end_of_row(a.call, tile.head, rows.m[r], rows.l[r]);
    const bool inside = row + 8 * r < tile.length;
    const int64_t token = tile.begin + row + 8 * r;
    __nv_bfloat16* to = a.call.out + token * a.call.out_stride + int64_t{tile.head} * P::dim;
#pragma unroll
    for (int j = 0; j < P::dim / 8; j += 4) {
      uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[i] = pack_bf16(o[4 * (j + i) + 2 * r] * last.inverse, o[4 * (j + i) + 2 * r + 1] * last.inverse);
#pragma unroll
      for (int step = 1; step < 4; step *= 2)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!(i & step)) {
            const bool high = lane & step;
            const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? x[i] : x[i | step], step);
            (high ? x[i] : x[i | step]) = got;
          }
      if (inside) *reinterpret_cast<uint4*>(to + (j + lane) * 8) = make_uint4(x[0], x[1], x[2], x[3]);
    }
    if (inside && lane == 0 && a.call.lse) a.call.lse[token * a.call.lse_stride + tile.head] = last.lse;
  }
}

template <class P>
__device__ void attend_tiles(Shared<P>& shared, const Arguments& a, int consumer) {
  const int thread = static_cast<int>(threadIdx.x % 128), lane = thread % 32;
  const int row_in_tile = consumer * 64 + thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
  const auto release = [&](Barrier& barrier) {
    __syncwarp();  // all lanes have read; lane 0 arrives for the warp
    if (lane == 0) barrier.arrive();
  };

  sm90::RingPlace<P::stages> keys, values;
  for (uint32_t parity = 0;; parity ^= 1) {
    shared.tile_full.wait(parity);                                     // the scheduler has published a tile
    const ListedTile listed = lane == 0 ? shared.tile : ListedTile{};  // the lane that releases the tile reads it
    const ListedTile tile = {uniform(listed.row), uniform(listed.begin), uniform(listed.length), uniform(listed.head)};
    release(shared.tile_empty);
    if (tile.row < 0) return;
    const Blocks blocks = blocks_of(tile, P::rows, a.window);
    const int row = tile.row + row_in_tile, warpgroup_row = tile.row + consumer * 64;
    const auto mask_block = [&](float(&s)[64], int block) {
      const int key = block * block_keys;
      if (key + block_keys - 1 > warpgroup_row) mask_later(s, row, key + column);
      if (key < warpgroup_row + 64 - a.window) mask_earlier(s, row, key + column, a.window);
    };
    float s[64], o[P::outputs], alpha[2];
    uint32_t q[P::dim / 4], p[32];
    SoftmaxRows rows;
    Total<P::outputs> total{.rows = {}, .outputs = shared.total[consumer]};
    bool first_of_split = true;

    // First block: scores and weights.
    shared.q_full.wait(parity);
    load_queries<P>(q, shared.q + consumer * 64 * 128);
    release(shared.q_empty);
    shared.k_full[keys.stage].wait(keys.parity);  // the keys of the first block have landed
    queue_scores<P>(s, q, smem_descriptor(shared.k[keys.stage]));
    wgmma_wait<0>();  // the scores are complete
    wgmma_fence_registers(s);
    release(shared.k_empty[keys.stage]);
    keys.next();
    mask_block(s, blocks.first);
    weigh(s, rows, alpha, a.call.c);
    pack(p, s);
    if (blocks.first + 1 < blocks.end) shared.k_full[keys.stage].wait(keys.parity);

#pragma unroll 1
    // Main loop: scores of this block while p . v of the block before runs.
    for (int block = blocks.first + 1; block < blocks.end; ++block) {
      queue_scores<P>(s, q, smem_descriptor(shared.k[keys.stage]));
      shared.v_full[values.stage].wait(values.parity);  // the values of the block before have landed
      queue_values<P>(o, p, smem_descriptor(shared.v[values.stage], P::kv_chunk), !first_of_split);
      wgmma_wait<1>();  // the scores are complete; p . v still runs
      wgmma_fence_registers(s);
      release(shared.k_empty[keys.stage]);
      keys.next();
      first_of_split = block % split_blocks == 0;
      const SoftmaxRows split = rows;
      if (first_of_split) rows = {};
      mask_block(s, block);
      weigh(s, rows, alpha, a.call.c);
      // Wait for the next keys here. Without a branch between them, ptxas would move the next wait ahead of the
      // weights.
      if (block + 1 < blocks.end) shared.k_full[keys.stage].wait(keys.parity);
      wgmma_wait<0>();
      wgmma_fence_registers(o);
      wgmma_fence_registers(p);
      release(shared.v_empty[values.stage]);
      values.next();
      if (first_of_split) {
        total.merge(split, o, a.call.c);
        total.keep(o);
      } else {
#pragma unroll
        for (int i = 0; i < P::outputs; ++i) o[i] *= alpha[i / 2 % 2];
      }
      pack(p, s);
    }

    // Last block: p . v, then the merge of the last split and the stores.
    shared.v_full[values.stage].wait(values.parity);
    if (blocks.end * block_keys > tile.length)
      clear_values<P>(shared.v[values.stage], tile.length % block_keys, consumer);
    queue_values<P>(o, p, smem_descriptor(shared.v[values.stage], P::kv_chunk), !first_of_split);
    wgmma_wait<0>();  // the outputs are complete
    wgmma_fence_registers(o);
    release(shared.v_empty[values.stage]);
    values.next();
    total.merge(rows, o, a.call.c);
    store<P>(a, tile, row, o, total.rows);
  }
}

template <class P>
__global__ void __launch_bounds__(P::threads, 1)
    attention_sm90_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                          const __grid_constant__ CUtensorMap v, const Arguments a) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<Shared<P>*>(memory);
  if (threadIdx.x == 0) {
    prefetch_tensor_map(q);
    prefetch_tensor_map(k);
    prefetch_tensor_map(v);
    shared.tile_full.init(1);
    shared.tile_empty.init(1 + 4 * P::consumers);
    shared.q_full.init(1);
    shared.q_empty.init(4 * P::consumers);
    for (int i = 0; i < P::stages; ++i) {
      shared.k_full[i].init(1);
      shared.k_empty[i].init(4 * P::consumers);
      shared.v_full[i].init(1);
      shared.v_empty[i].init(4 * P::consumers);
    }
    fence_mbarrier_init();
  }
  griddep_wait();   // the tile list is complete
  __syncthreads();  // mbarriers are initialized
  if (threadIdx.x < 128) {
    setmaxnreg_dec<P::producer_registers>();
    if (threadIdx.x == 0) copy_tiles<P>(shared, q, k, v, a);
    if (threadIdx.x == 32) claim_tiles<P>(shared, a);
  } else {
    setmaxnreg_inc<P::registers>();
    attend_tiles<P>(shared, a, uniform(static_cast<int>(threadIdx.x) / 128) - 1);
  }
}

constexpr int64_t cached_bytes = int64_t{16} << 20;  // K and V bytes of the heads in work at a time; they stay in L2

template <class P>
void launch(Context& context, const AttentionCall<__nv_bfloat16>& call, const Tensor& q, const Tensor& k,
            const Tensor& v) {
  const ScratchScope scope(context);
  const int kv_heads =
      static_cast<int>(std::clamp<int64_t>(cached_bytes / (int64_t{call.tokens} * P::dim * 4), 1, call.kv_heads));
  const Arguments arguments{.call = call,
                            .list = make_list(context, call, P::rows),
                            .heads_together = kv_heads * call.group,
                            .window = call.window > 0 ? call.window : 1 << 30};
  constexpr int bytes = sizeof(Shared<P>);
  allow_shared_memory(attention_sm90_kernel<P>, bytes);
  const int64_t most_tiles = (int64_t{call.tokens} / P::rows + call.sequences) * call.kv_heads * call.group;
  const int blocks = static_cast<int>(std::min<int64_t>(num_sms(), most_tiles));
  // The kernel's prologue overlaps list_tiles.
  launch_pdl(cuda_stream(context), attention_sm90_kernel<P>, dim3(static_cast<unsigned>(blocks)), P::threads, bytes, 1,
             map_of_heads(q, P::rows), map_of_heads(k, block_keys), map_of_heads(v, block_keys), arguments);
}

// TMA and 16-byte stores need aligned rows.
bool copyable(const Tensor& x) {
  return x.dtype == DType::bf16 && (x.dim(2) == 64 || x.dim(2) == 128) && x.row_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

bool supports(const AttentionForward& args) {
  return args.shape.softcap == 0 && runs_hopper_bodies() && args.out.rank == 3 && args.q.rank == 3 &&
         args.k.rank == 3 && args.v.rank == 3 && copyable(args.out) && copyable(args.q) && copyable(args.k) &&
         copyable(args.v);
}

void run(Context& context, const AttentionForward& args) {
  const auto call = call_of<__nv_bfloat16>(attention_forward, args);
  if (call.tokens == 0) return;
  (call.dim == 64 ? launch<Plan64> : launch<Plan128>)(context, call, args.q, args.k, args.v);
  check_launch(attention_forward);
}

[[maybe_unused]] const bool added = attention_forward.add({"sm90", DeviceKind::cuda, run, 20, supports});

}  // namespace
}  // namespace hone
