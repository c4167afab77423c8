// latent_attention_forward and latent_attention_paged for bf16 on Hopper by TMA and wgmma.
//
// Use       bf16 with 16-byte aligned rows, contiguous q and KV blocks of a multiple of 16 rows. Calls with at most 16
//           rows per sequence run the mma.sync plan.
// Tile      64 query rows by key blocks of 64 (tiles.cuh). A thread block takes tiles, or splits of tiles, in turns.
// Roles     384 threads. Warpgroups 0 and 1: consumers. Blocks are computed in pairs: warpgroup 0 computes the scores
//           of the first, warpgroup 1 those of the second. Each multiplies the weights of both with its 256 columns of
//           the values. So the softmax of one block runs beside the wgmmas of the other. Warps 8 to 11: producers, 16
//           keys each.
// Pipeline  2 smem stages of 64 latent rows (72 KB), for the two blocks of a pair. A stage has three parts, with a full
//           and an empty mbarrier each: the 256 columns of either warpgroup, and the rest. Scores begin before the
//           stage is complete, and loads before all of it has been read. A warp hands its 16 rows of weights to the
//           same warp of the other warpgroup by an mbarrier.
// Smem      dynamic, 226 KB: LatentShared. q and latents as tiles of 64 columns with the 128-byte swizzle
//           (kernels/cuda/hopper.cuh), one after the other.
// Numerics  tiles.cuh: the bits of the mma.sync plans.
// PDL       none.
// Limits    sm_90a; as tiles.cuh.
#include "kernels/attention/latent/consumer_sm90.cuh"

namespace hone::attention {
namespace {

using namespace latent;

// A producer warp loads 16 keys of each block; the first also loads q.
__device__ void load_tiles(LatentShared& shared, const CUtensorMap& q_map, const CUtensorMap& rows_map,
                           const LatentCall<Bf16>& call, const LatentWork& work) {
  const AttentionCall<Bf16>& of = call.of;
  const int producer = static_cast<int>(threadIdx.x) / 32 - consumer_threads / 32;
  uint32_t parity[2] = {0, 0}, q_parity = 0;
  LatentItem item;
  for (int index = static_cast<int>(blockIdx.x); index < work.num_items(); index += static_cast<int>(gridDim.x)) {
    if (!item_at<HopperPlan>(of, work, index, item)) continue;
    const LatentSpan& span = item.span;
    const auto load = [&](int block, int stage) {
      const int key = block * latent_keys + producer * box_keys;
      const bool real = key < span.sequence.length;
      const int slot = real ? static_cast<int>(slot_of(of, span.sequence, span.tile.sequence, key)) : 0;
      if (elect()) {
        for (int part = 0; part < num_parts; ++part) {
          Barrier& full = shared.full[stage][part];
          const int first = first_panel(part), last = first_panel(part + 1);
          shared.empty[stage][part].wait(parity[stage] ^ 1);  // 4 consumer warps have read the part
          full.arrive_expect_tx(real ? static_cast<uint32_t>((last - first) * box_keys * 128) : 0);
          for (int panel = first; real && panel < last; ++panel)
            tma_load(shared.keys[stage] + panel * panel_bytes + producer * box_keys * 128, rows_map, full, panel * 64,
                     slot);
        }
        if (producer == 0 && block == item.begin) {
          shared.q_empty.wait(q_parity ^ 1);  // 8 consumer warps have read q
          shared.q_full.arrive_expect_tx(tile_bytes);
          for (int panel = 0; panel < panels; ++panel)
            tma_load(shared.q + panel * panel_bytes, q_map, shared.q_full, panel * 64,
                     span.sequence.begin * of.group + span.tile.first_row);
        }
      }
      __syncwarp();
      parity[stage] ^= 1;
    };
    BlockOrder at{item.begin, item.end};
    while (at.block < at.end) {
      const bool pair = at.has_pair();
      load(at.block++, 0);
      if (pair) load(at.block++, 1);
    }
    q_parity ^= 1;
  }
}

__global__ void __launch_bounds__(threads, 1)
    latent_sm90_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap rows_map,
                       const __grid_constant__ LatentCall<Bf16> call, const __grid_constant__ LatentWork work) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<LatentShared*>(memory);
  if (threadIdx.x == 0) {
    prefetch_tensor_map(q_map);
    prefetch_tensor_map(rows_map);
    shared.q_full.init(1);
    shared.q_empty.init(8);
    for (int stage = 0; stage < 2; ++stage) {
      for (Barrier& full : shared.full[stage]) full.init(producer_warps);
      for (Barrier& empty : shared.empty[stage]) empty.init(4);
      for (Barrier& scored : shared.scored[stage]) scored.init(32);
    }
    fence_mbarrier_init();
  }
  __syncthreads();  // the mbarriers are initialized
  if (threadIdx.x >= consumer_threads) {
    setmaxnreg_dec<40>();
    load_tiles(shared, q_map, rows_map, call, work);
  } else {
    setmaxnreg_inc<232>();
    if (threadIdx.x < 128)
      LatentConsumer<0>(shared, call, work).run();
    else
      LatentConsumer<1>(shared, call, work).run();
  }
}

template <class Args>
void run(Context& context, const OpBase& op, const Args& args) {
  const LatentCall<Bf16> call = latent_call_of<Bf16>(args);
  if (call.of.tokens == 0) return;
  const ScratchScope scope(context);
  const LatentDivision division = divide_latent<HopperPlan>(args);
  const LatentWork work = take_latent_work<HopperPlan>(context, division);
  constexpr int bytes = sizeof(LatentShared);
  allow_shared_memory(latent_sm90_kernel, bytes);
  const Tensor queries = args.q.view({args.q.dim(0) * args.q.dim(1), args.q.dim(2)});
  latent_sm90_kernel<<<static_cast<unsigned>(division.blocks()), threads, bytes, cuda_stream(context)>>>(
      make_tensor_map(queries, HopperPlan::rows), make_tensor_map(rows_of(args), box_keys), call, work);
  if (!work.in_turns) launch_latent_sum<HopperPlan>(context, call, work);
  check_launch(op);
}

void forward(Context& context, const LatentAttentionForward& args) {
  if (has_few_rows(args)) return latent_forward_mma(context, args);
  run(context, latent_attention_forward, args);
}
void paged(Context& context, const LatentAttentionPaged& args) {
  if (has_few_rows(args)) return latent_paged_mma(context, args);
  run(context, latent_attention_paged, args);
}
template <class Args>
size_t scratch_of(const Args& args) {
  if (has_few_rows(args)) return latent_scratch_mma(args);
  return latent_scratch_of<HopperPlan>(args);
}

template <class Args>
bool loads_by_tma(const Args& args) {
  return has_latent_units(args) && args.q.contiguous() && runs_hopper_bodies();
}

[[maybe_unused]] const bool added =
    latent_attention_forward.add({"sm90", DeviceKind::cuda, forward, 20, loads_by_tma<LatentAttentionForward>,
                                  scratch_of<LatentAttentionForward>}) &&
    latent_attention_paged.add(
        {"sm90", DeviceKind::cuda, paged, 20,
         [](const LatentAttentionPaged& args) { return loads_by_tma(args) && args.cache.block_size % box_keys == 0; },
         scratch_of<LatentAttentionPaged>});

}  // namespace
}  // namespace hone::attention
