// attention_paged for few queries and bf16 on Hopper: the ring kernel with tiles loaded by TMA, or for few sequences
// the kernel of decode_cluster_sm90.cu. Prefill chunks go to prefill/tiles.cu.
//
// Use       bf16 caches. Rings: calls with enough splits to occupy the SMs (most_in_clusters).
// Tile      ring.cuh.
// Roles     ring.cuh, with one producer warp.
// Pipeline  ring of 12 stages of 8 KB alone; else, for N = 1: 5 of 8 KB (D = 64) or 11 of 4 KB (D = 128); else 10 of 8
//           KB.
// Smem      about 105 or 114 KB alone (1 block per SM), 49 or 53 KB for N = 1 and D <= 128 (4 blocks), else 89 or 98 KB
//           (2 blocks; 1 for D = 256, N = 2).
// Numerics  numerics.cuh; the bits of the "mma" body.
// PDL       ring.cuh.
// Limits    sm_90a; ring.cuh.
#include "kernels/attention/decode/ring.cuh"
#include "kernels/attention/wgmma.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace hone::attention {
namespace {

struct TmaSource {
  using Barrier = hopper::Barrier;
  // With four blocks per SM each has 57 KB, of which the ring may take 44.
  static constexpr int producers = 1, full_arrivals = 1, small_blocks = 4, alone_bytes = 96 * 1024,
                       small_bytes = 44 * 1024, large_bytes = 80 * 1024;
  CUtensorMap k, v;
  int box_shift;

  __device__ void prepare() const {
    hopper::fence_mbarrier_init();
    if (threadIdx.x == 32 * ring_warps) {
      hopper::prefetch_tensor_map(k);
      hopper::prefetch_tensor_map(v);
    }
  }

  template <int tile_keys>
  __device__ void copy(char* stage, Barrier& full, const uint32_t* slots, const AttentionCall<Bf16>&,
                       const DecodeTile& tile, bool values, int begin, int part, int) const {
    if (!hopper::elect()) return;
    const int first = max(begin, tile.low) >> box_shift,
              end = (min(begin + tile_keys - 1, tile.high) >> box_shift) + 1;  // TMA boxes
    const CUtensorMap& map = values ? v : k;
    full.arrive_expect_tx(static_cast<uint32_t>(max(end - first, 0)) << (box_shift + 7));
    for (int i = first; i < end; i += 4) {
      int at[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) at[j] = static_cast<int>(slots[min(i + j, end - 1)]);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (i + j < end)
          sm90::tma_load(stage + ((i + j << box_shift) - begin) * 128, map, full, part * 64, tile.kv_head, at[j]);
    }
  }
};

void launch_rings(cudaStream_t stream, const AttentionCall<Bf16>& call, const SplitPartials& partials,
                  const PagedKv& cache, int octets) {
  const uint32_t box_keys = ring_box_keys(call.block_size);
  const TmaSource source{map_of_heads(cache.k, static_cast<int>(box_keys)),
                         map_of_heads(cache.v, static_cast<int>(box_keys)), std::countr_zero(box_keys)};
  with_ring(call, partials, octets, [&](auto width, auto n, auto alone) {
    launch_ring<width(), n(), alone()>(stream, call, partials, source);
  });
}

void decode(cudaStream_t stream, const AttentionCall<Bf16>& call, const SplitPartials& partials, const PagedKv& cache,
            int octets) {
  // Measured on an H200, us at 200, 592 and 1000 keys. Head dimension 128: with 24 (sequence, KV head) pairs the
  // cluster kernel takes 7, 9, 12 and the ring kernel 8, 15, 22; with 32 pairs 12, 15, 18 and 8, 15, 22. Head dimension
  // 64: with 2 pairs 4, 5, 7 and 3, 5, 8; with 8 pairs 6, 7, 9 and 3, 6, 8.
  const int64_t pairs = int64_t{call.sequences} * call.kv_heads,
                tiles = pairs * partials.splits * ((partials.rows + 15) / 16),
                most_in_clusters = num_sms() / (call.dim <= 64 ? 44 : 5);
  if (tiles <= most_in_clusters)
    launch_decode_cluster(stream, call, partials, octets);
  else
    launch_rings(stream, call, partials, cache, octets);
}

bool supports(const AttentionPaged& args) {
  return args.shape.softcap == 0 && runs_hopper_bodies() && has_units(args.q);
}

[[maybe_unused]] const bool added = attention_paged.add(
    {"sm90", DeviceKind::cuda,
     [](Context& context, const AttentionPaged& args) { run_attention_paged(context, args, decode); }, 15, supports});

}  // namespace
}  // namespace hone::attention
