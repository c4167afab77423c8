// latent_attention_forward and latent_attention_paged for bf16 on any GPU: the plans of the kernel (tiles.cuh) and the
// choice of one by the shared memory of the device.
#include "kernels/attention/latent/bodies.cuh"
#include "kernels/cuda/launch_plan.h"

namespace hone::attention {
namespace {

// All plans have the same bits. few_rows: a sequence has at most 16 rows in the call. The last plan fits the 99 KB of
// capability 8.6, 8.9 and 12.0: 93 KB.
struct MmaPlans {
  template <class Body>
  static void with(const DeviceLimits& limits, bool few_rows, Body body) {
    if (few_rows) return with_fitting_plan<LatentPlan<1, 2>, LatentPlan<1, 1>>(limits, body);
    with_fitting_plan<LatentPlan<4, 2>, LatentPlan<4, 1>, LatentPlan<1, 1>>(limits, body);
  }
};

[[maybe_unused]] const bool added =
    latent_attention_forward.add({"mma", DeviceKind::cuda, run_latent_forward<MmaPlans>, 10,
                                  [](const LatentAttentionForward& args) { return has_latent_units(args.out, args.q); },
                                  latent_forward_scratch<MmaPlans>}) &&
    latent_attention_paged.add({"mma", DeviceKind::cuda, run_latent_paged<MmaPlans>, 10,
                                [](const LatentAttentionPaged& args) { return has_latent_units(args.out, args.q); },
                                latent_paged_scratch<MmaPlans>});

[[maybe_unused]] const bool planned =
    launch_plans().add("latent_attention.mma", [](const DeviceLimits& limits, LaunchPlans& out) {
      for (const bool few_rows : {false, true})
        MmaPlans::with(limits, few_rows, [&](auto plan) {
          using P = decltype(plan);
          const std::string rows = concat(" of ", P::rows, " rows");
          out.add("latent_turns_kernel" + rows, latent_turns_kernel<P>, P::threads, P::bytes);
          out.add("latent_split_kernel" + rows, latent_split_kernel<P>, P::threads, P::bytes);
          out.add("latent_sum_kernel" + rows, latent_sum_kernel<P>, P::threads, P::bytes);
        });
    });

}  // namespace
}  // namespace hone::attention
