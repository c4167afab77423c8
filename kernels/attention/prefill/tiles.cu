// attention_forward and the prefill chunks of attention_paged for bf16 on any GPU: the plans of the kernel (tiles.cuh)
// and the choice of one by the shared memory of the device.
#include "kernels/attention/prefill/tiles.cuh"
#include "kernels/cuda/launch_plan.h"

namespace hone::attention {
namespace {

// Calls body(P{}) with the plan of the kernel for a head dimension. All plans have the same bits. Arguments of a plan:
// width, keys of a step, stages, warps, groups of 16 rows per warp, q in registers, blocks per SM. The last plan of a
// width fits the 99 KB of capability 8.6, 8.9 and 12.0: 50, 98 and 82 KB.
template <class Body>
void with_tile_plan(const DeviceLimits& limits, int dim, Body body) {
  if (dim <= 64) return with_fitting_plan<TilePlan<64, 64, 2, 4, 1, true, 3>>(limits, body);
  if (dim <= 128) return with_fitting_plan<TilePlan<128, 64, 2, 4, 1, true, 2>>(limits, body);
  with_fitting_plan<TilePlan<256, 32, 2, 4, 1, false, 1>, TilePlan<256, 16, 2, 2, 1, false, 1>>(limits, body);
}

template <class P, bool paged>
void launch(Context& context, const AttentionCall<Bf16>& call) {
  allow_shared_memory(tile_kernel<P, paged>, P::bytes);
  const dim3 grid(static_cast<unsigned>(tile_bound(call.tokens, call.sequences, call.group, P::rows)),
                  static_cast<unsigned>(call.kv_heads));
  tile_kernel<P, paged><<<grid, P::threads, P::bytes, cuda_stream(context)>>>(call);
}

void forward(Context& context, const AttentionForward& args) {
  const AttentionCall<Bf16> call = call_of<Bf16>(attention_forward, args);
  HONE_CHECK(reads_in_units(args.q) && reads_in_units(args.k) && reads_in_units(args.v) && reads_in_units(args.out),
             "attention_forward: the rows of q, k, v and out must be 16-byte aligned");
  if (call.tokens == 0) return;
  launch_tiles(context, call);
  check_launch(attention_forward);
}

[[maybe_unused]] const bool added =
    attention_forward.add({"mma", DeviceKind::cuda, forward, 10,
                           [](const AttentionForward& args) { return args.shape.softcap == 0 && has_units(args.q); }});

[[maybe_unused]] const bool planned = launch_plans().add("attention_forward.mma", [](const DeviceLimits& limits,
                                                                                     LaunchPlans& out) {
  for (const int dim : {64, 128, 256})
    with_tile_plan(limits, dim, [&](auto plan) {
      using P = decltype(plan);
      out.add(concat("tile_kernel D = ", dim), tile_kernel<P, false>, P::threads, P::bytes);
      out.add(concat("tile_kernel D = ", dim, ", paged"), tile_kernel<P, true>, P::threads, P::bytes, P::static_bytes);
    });
});

}  // namespace

void launch_tiles(Context& context, const AttentionCall<Bf16>& call) {
  with_tile_plan(device_limits(), call.dim, [&](auto plan) {
    using P = decltype(plan);
    if (call.table)
      launch<P, true>(context, call);
    else
      launch<P, false>(context, call);
  });
}

}  // namespace hone::attention
