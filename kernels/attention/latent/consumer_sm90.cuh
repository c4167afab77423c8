#pragma once
// The consumer warpgroups of latent attention on Hopper (tiles_sm90.cu, which describes the kernel), and the shared
// memory that they and the producers use. Only .cu files include it.
#include "kernels/attention/latent/bodies.cuh"
#include "kernels/attention/wgmma.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace hone::attention::latent {

using namespace sm90;
using hopper::elect;

constexpr int panels = 9, box_keys = 16, half_panels = 4, producer_warps = latent_keys / box_keys;
constexpr int panel_bytes = 64 * 128, tile_bytes = panels * panel_bytes;  // 64 columns of 64 rows; q, or a stage
constexpr int consumer_threads = 256, threads = 384;
constexpr int num_parts = 3;  // of a stage: the panels [first_panel(i), first_panel(i + 1))

__host__ __device__ constexpr int first_panel(int part) { return part < num_parts ? half_panels * part : panels; }

// A warp's sums: 16 rows and 256 columns. Its parts of a tile in scratch memory have the layout of tiles.cuh.
struct HopperPlan {
  static constexpr int rows = 64, threads = consumer_threads, sum_fragments = 1, sum_tiles = 32;
  static constexpr int64_t partial_floats = int64_t{rows} * 8 * latent_warp_columns;
  static __device__ int first_row(int warp) { return warp % 4 * 16; }
  static __device__ int first_column(int warp) { return warp / 4 * 256; }
};

struct LatentShared {
  alignas(1024) char q[tile_bytes];
  alignas(1024) char keys[2][tile_bytes];
  uint4 weights[4][4][32];  // [warp, 16 keys, lane]: fragments of the block that was scored last
  float4 stats[64];         // of its rows: m, alpha, sum of p
  Barrier q_full, q_empty, full[2][num_parts], empty[2][num_parts], scored[2][4];
};

// The blocks of an item in order: pairs, which begin at an even block, and single ones before and after them. A block
// alone has stage 0. The parities of the stages change with each use.
struct BlockOrder {
  int block, end;
  __device__ bool has_pair() const { return block % 2 == 0 && block + 1 < end; }
};

// The statistics of a lane's two rows, r = 0, 1.
struct RowStats {
  float m[2], l[2];
  __device__ void reset() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      m[r] = -INFINITY;
      l[r] = 0;
    }
  }
};

// What the scores of a block give: weights as A fragments of 16 keys each, and each row's new maximum, factor of the
// sums before, and sum of its weights.
struct BlockWeights {
  uint32_t p[4][4];
  float m[2], alpha[2], sum[2];
};

// A consumer warpgroup.
template <int warpgroup>
struct LatentConsumer {
  LatentShared& shared;
  const LatentCall<Bf16>& call;
  const LatentWork& work;
  int warp, lane;                             // warp: within the warpgroup
  uint32_t parity[2] = {0, 0}, q_parity = 0;  // of the stages in use
  LatentItem item;
  int first[2], last[2];  // keys that the lane's rows see
  float o[2][64];         // 128 columns each
  float* parts;           // of the item, in scratch memory
  RowStats split, total;

  __device__ LatentConsumer(LatentShared& memory, const LatentCall<Bf16>& of_call, const LatentWork& of_work)
      : shared(memory),
        call(of_call),
        work(of_work),
        warp(uniform(static_cast<int>(threadIdx.x) / 32 % 4)),
        lane(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void release(Barrier& barrier) const {
    __syncwarp();  // all lanes have read; lane 0 arrives for the warp
    if (lane == 0) barrier.arrive();
  }
  __device__ int row_of(int r) const { return warp * 16 + lane / 4 + 8 * r; }  // in the tile

  // Queues s = q . k of the block in a stage.
  __device__ void queue_scores(float (&s)[32], int stage) const {
    const uint64_t q = smem_descriptor(shared.q), keys = smem_descriptor(shared.keys[stage]);
    wgmma_fence_registers(s);
#pragma unroll
    for (int part = 0; part < num_parts; ++part) {
      shared.full[stage][part].wait(parity[stage]);  // this part of the keys has landed
      wgmma_fence();
#pragma unroll
      for (int panel = first_panel(part); panel < first_panel(part + 1); ++panel)
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          const auto bytes = static_cast<uint32_t>(panel * panel_bytes + step * 32);
          wgmma_ss(s, further(q, bytes), further(keys, bytes), panel > 0 || step > 0);
        }
    }
    wgmma_commit();
  }
  // The scores of a block are complete: their weights. The columns that are no values may be loaded again; and q if it
  // is the last one of the item for this warpgroup.
  __device__ void weigh_block(float (&s)[32], BlockWeights& weights, int block, int stage, bool is_last) const {
    wgmma_fence_registers(s);
    release(shared.empty[stage][2]);
    if (is_last) release(shared.q_empty);
    mask(s, block);
    weigh(s, weights);
  }

  // Hides the keys of a block that a row does not see.
  __device__ void mask(float (&s)[32], int block) const {
    const int key = block * latent_keys, column = key + lane % 4 * 2;
    if (key + latent_keys - 1 <= min(last[0], last[1]) && key >= max(first[0], first[1])) return;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int at_key = column + i / 4 * 8 + i % 2, r = i / 2 % 2;
      if (at_key > last[r] || at_key < first[r]) s[i] = -INFINITY;
    }
  }

  __device__ void weigh(float (&s)[32], BlockWeights& out) const {
    const float c = call.of.c;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = -INFINITY;
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (i / 2 % 2 == r) most = fmaxf(most, s[i]);
      out.m[r] = raised(split.m[r], quad_max(most), c);
      const float from = base_of(out.m[r]), shift = shift_of(from, c);
      out.alpha[r] = rescaling(split.m[r], from, c);
      float sums[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {  // groups of 16 keys
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int i = 8 * k + 4 * j + 2 * r;
          const float low = weight(s[i], c, shift), high = weight(s[i + 1], c, shift);
          sum = j == 0 ? low + high : sum + low + high;
          out.p[k][2 * j + r] = pack_bf16(low, high);
        }
        sums[k] = quad_sum(sum);
      }
      out.sum[r] = sums[0] + sums[1] + sums[2] + sums[3];
    }
  }

  // Hands the weights of the block in `stage` to the other warpgroup. The one memory for weights is free: in a pair
  // each warpgroup has received the other's weights before it publishes, and a single block ends with a barrier of
  // both.
  __device__ void publish(const BlockWeights& weights, int stage) const {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      shared.weights[warp][k][lane] = make_uint4(weights.p[k][0], weights.p[k][1], weights.p[k][2], weights.p[k][3]);
    __syncwarp();
    if (lane % 4 == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        shared.stats[row_of(r)] = make_float4(weights.m[r], weights.alpha[r], weights.sum[r], 0);
    }
    shared.scored[stage][warp].arrive();
  }
  __device__ void receive(BlockWeights& weights, int stage) const {
    shared.scored[stage][warp].wait(parity[stage]);     // the other warpgroup has weighed this warp's 16 rows
    shared.full[stage][warpgroup].wait(parity[stage]);  // landed long ago: makes TMA's writes visible
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint4 x = shared.weights[warp][k][lane];
      weights.p[k][0] = x.x;
      weights.p[k][1] = x.y;
      weights.p[k][2] = x.z;
      weights.p[k][3] = x.w;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float4 x = shared.stats[row_of(r)];
      weights.m[r] = x.x;
      weights.alpha[r] = x.y;
      weights.sum[r] = x.z;
    }
  }

  // Rescales the sums of the split for a block, and queues o = o + p . v; from zero at the start of a split.
  __device__ void queue_values(BlockWeights& weights, int block, int stage, bool opens_split) {
    bool changes = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      split.m[r] = weights.m[r];
      split.l[r] = fmaf(split.l[r], weights.alpha[r], weights.sum[r]);
      changes |= weights.alpha[r] != 1.0f;
    }
    if (!opens_split && __any_sync(0xffffffffu, changes)) {
      wgmma_wait<0>();  // ptxas would wait on both paths if a wgmma of the scores was in flight
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int i = 0; i < 64; ++i) o[h][i] *= weights.alpha[i / 2 % 2];
    }
    const int keys = item.span.sequence.length - block * latent_keys;
    if (keys < latent_keys) clear_values(keys, stage);
    const uint64_t values = smem_descriptor(
        shared_address(shared.keys[stage]) + static_cast<uint32_t>(warpgroup * half_panels * panel_bytes), panel_bytes);
    wgmma_fence_registers(o[0]);
    wgmma_fence_registers(o[1]);
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma_fence_registers(weights.p[k]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto bytes = static_cast<uint32_t>(k * 16 * 128);
      wgmma_rs(o[0], weights.p[k], further(values, bytes), k > 0 || !opens_split);
      wgmma_rs(o[1], weights.p[k], further(values, 2 * panel_bytes + bytes), k > 0 || !opens_split);
    }
    wgmma_commit();
  }
  // Waits for p . v and all wgmmas before. The warpgroup's part of the stage may be loaded again.
  __device__ void finish_values(int stage) {
    wgmma_wait<0>();
    wgmma_fence_registers(o[0]);
    wgmma_fence_registers(o[1]);
    release(shared.empty[stage][warpgroup]);
  }
  // Zeroes the values past the end of the sequence, where the memory may hold anything. No wgmma of the block's scores
  // reads them any more: its weights are known.
  __device__ void clear_values(int keys, int stage) const {
    for (int panel = warpgroup * half_panels; panel < (warpgroup + 1) * half_panels; ++panel) {
      auto* const to = reinterpret_cast<float4*>(shared.keys[stage] + panel * panel_bytes);
      for (int i = keys * 8 + static_cast<int>(threadIdx.x % 128); i < latent_keys * 8; i += 128)
        to[i] = make_float4(0, 0, 0, 0);
    }
    fence_async_proxy();
    named_sync(1 + warpgroup, 128);  // the zeros are written before the warpgroup's wgmma reads them
  }

  // Blocks `block` and `block` + 1. The maxima of the first enter the weights of the second.
  __device__ void compute_pair(int block, bool opens_split) {
    const bool is_last = block + 2 == item.end;
    float s[32];
    BlockWeights even, odd;
    if constexpr (warpgroup == 0) {
      queue_scores(s, 0);
      wgmma_wait<0>();
      weigh_block(s, even, block, 0, is_last);
      publish(even, 0);
      queue_values(even, block, 0, opens_split);
      receive(odd, 1);
      finish_values(0);
      queue_values(odd, block + 1, 1, false);
    } else {
      queue_scores(s, 1);
      receive(even, 0);
      queue_values(even, block, 0, opens_split);
      wgmma_wait<1>();  // the scores are complete; p . v still runs
      weigh_block(s, odd, block + 1, 1, is_last);
      publish(odd, 1);
      finish_values(0);
      queue_values(odd, block + 1, 1, false);
    }
    finish_values(1);
    parity[0] ^= 1;
    parity[1] ^= 1;
  }
  // A block alone: warpgroup 0 computes its scores.
  __device__ void compute_single(int block, bool opens_split) {
    const bool is_last = block + 1 == item.end;
    BlockWeights weights;
    if constexpr (warpgroup == 0) {
      float s[32];
      queue_scores(s, 0);
      wgmma_wait<0>();
      weigh_block(s, weights, block, 0, is_last);
      publish(weights, 0);
    } else {
      if (is_last) release(shared.q_empty);
      receive(weights, 0);
    }
    queue_values(weights, block, 0, opens_split);
    finish_values(0);
    named_sync(3, consumer_threads);  // the weights have been read; in a pair the second block says so
    parity[0] ^= 1;
  }

  __device__ float4* part_at(int h, int i) const {
    return reinterpret_cast<float4*>(parts) + (h * 16 + i) * consumer_threads + warpgroup * 128 + warp * 32 + lane;
  }
  __device__ void store_parts() const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < 16; ++i)
        *part_at(h, i) = make_float4(o[h][4 * i], o[h][4 * i + 1], o[h][4 * i + 2], o[h][4 * i + 3]);
  }
  // Merges the split into the total, whose o is in scratch memory; o becomes that of the total.
  __device__ void merge_split(bool is_first) {
    if (is_first) {
      total = split;
      return;
    }
    MergeFactors factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factors[r] = merge_factors(total.m[r], split.m[r], call.of.c);
      total.l[r] = merged(total.l[r], split.l[r], factors[r]);
      total.m[r] = factors[r].m;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float4 before = *part_at(h, i);
        o[h][4 * i] = merged(before.x, o[h][4 * i], factors[0]);
        o[h][4 * i + 1] = merged(before.y, o[h][4 * i + 1], factors[0]);
        o[h][4 * i + 2] = merged(before.z, o[h][4 * i + 2], factors[1]);
        o[h][4 * i + 3] = merged(before.w, o[h][4 * i + 3], factors[1]);
      }
  }

  // Writes out and lse of the tile.
  __device__ void store() const {
    const AttentionCall<Bf16>& of = call.of;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float factor = reciprocal(total.l[r]);
      const int row = item.span.tile.first_row + row_of(r);
      const bool inside = row < item.span.end_row;
      const int64_t token = int64_t{item.span.sequence.begin} + row / of.group;
      if (inside && of.lse && warpgroup == 0 && lane % 4 == 0)
        of.lse[token * of.lse_stride + row % of.group] = log_sum(total.m[r], total.l[r], of.scale);
      Bf16* const out = of.out + token * of.out_stride + int64_t{row % of.group} * call.rank;
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
          uint32_t x[4];
#pragma unroll
          for (int j = 0; j < 4; ++j)
            x[j] = pack_bf16(o[h][4 * (i + j) + 2 * r] * factor, o[h][4 * (i + j) + 2 * r + 1] * factor);
          exchange_quad(x, lane % 4);
          const int column = warpgroup * 256 + h * 128 + (i + lane % 4) * 8;
          if (inside && column < call.rank)
            *reinterpret_cast<uint4*>(out + column) = make_uint4(x[0], x[1], x[2], x[3]);
        }
    }
  }

  // Writes o, m and l of a split: the sum kernel merges them.
  __device__ void store_split() const {
    store_parts();
    if constexpr (warpgroup == 0)
      if (lane % 4 == 0) {
        float* const stats = work.stats + item.place * 2 * HopperPlan::rows;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          stats[row_of(r)] = split.m[r];
          stats[HopperPlan::rows + row_of(r)] = split.l[r];
        }
      }
  }

  __device__ void compute_item() {
    const LatentSpan& span = item.span;
    parts = work.totals + item.place * HopperPlan::partial_floats;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(span.tile.first_row + row_of(r), span.end_row - 1);
      last[r] = span.sequence.position + row / call.of.group;
      first[r] = first_seen(last[r], call.of.window);
    }
    split.reset();
    shared.q_full.wait(q_parity);
    q_parity ^= 1;
    bool has_total = false;
    BlockOrder at{item.begin, item.end};
#pragma unroll 1
    while (at.block < at.end) {
      const bool opens_split = at.block == item.begin || at.block % latent_split_blocks == 0;
      if (opens_split && at.block > item.begin) {
        merge_split(!has_total);
        store_parts();
        has_total = true;
        split.reset();
      }
      if (at.has_pair()) {
        compute_pair(at.block, opens_split);
        at.block += 2;
      } else {
        compute_single(at.block++, opens_split);
      }
    }
    if (!item.complete) return store_split();
    merge_split(!has_total);
    store();
  }

  __device__ void run() {
    for (int index = static_cast<int>(blockIdx.x); index < work.num_items(); index += static_cast<int>(gridDim.x))
      if (item_at<HopperPlan>(call.of, work, index, item)) compute_item();
  }
};

}  // namespace hone::attention::latent
