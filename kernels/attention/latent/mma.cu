// latent_attention_forward and latent_attention_paged for bf16 on any GPU: the plans of the kernel (tiles.cuh) and the
// choice of one by the shared memory of the device.
#include "kernels/attention/latent/bodies.cuh"
#include "kernels/cuda/launch_plan.h"

namespace hone::attention {
namespace {

// Calls body(P{}) with the plan of the kernel. All plans have the same bits. The last plan fits the 99 KB of capability
// 8.6, 8.9 and 12.0: 93 KB.
template <class Body>
void with_plan(const DeviceLimits& limits, bool few_rows, Body body) {
  if (few_rows) return with_fitting_plan<LatentPlan<1, 2>, LatentPlan<1, 1>>(limits, body);
  with_fitting_plan<LatentPlan<4, 2>, LatentPlan<4, 1>, LatentPlan<1, 1>>(limits, body);
}

template <class P, class Args>
void launch(Context& context, const Args& args, const LatentCall<Bf16>& call) {
  const ScratchScope scope(context);
  const LatentDivision division = divide_latent<P>(args);
  const LatentWork work = take_latent_work<P>(context, division);
  allow_shared_memory(latent_tiles_kernel<P>, P::bytes);
  latent_tiles_kernel<P>
      <<<static_cast<unsigned>(division.blocks()), P::threads, P::bytes, cuda_stream(context)>>>(call, work);
  if (!work.in_turns) launch_latent_sum<P>(context, call, work);
}

template <class Args>
void run(Context& context, const OpBase& op, const Args& args) {
  const LatentCall<Bf16> call = latent_call_of<Bf16>(args);
  if (call.of.tokens == 0) return;
  with_plan(device_limits(), has_few_rows(args), [&](auto plan) { launch<decltype(plan)>(context, args, call); });
  check_launch(op);
}
template <class Args>
size_t scratch_of(const Args& args) {
  size_t bytes = 0;
  with_plan(device_limits(), has_few_rows(args), [&](auto plan) { bytes = latent_scratch_of<decltype(plan)>(args); });
  return bytes;
}

}  // namespace

void latent_forward_mma(Context& context, const LatentAttentionForward& args) {
  run(context, latent_attention_forward, args);
}
void latent_paged_mma(Context& context, const LatentAttentionPaged& args) {
  run(context, latent_attention_paged, args);
}
size_t latent_scratch_mma(const LatentAttentionForward& args) { return scratch_of(args); }
size_t latent_scratch_mma(const LatentAttentionPaged& args) { return scratch_of(args); }

namespace {

[[maybe_unused]] const bool added =
    latent_attention_forward.add({"mma", DeviceKind::cuda, latent_forward_mma, 10,
                                  has_latent_units<LatentAttentionForward>, latent_scratch_mma}) &&
    latent_attention_paged.add(
        {"mma", DeviceKind::cuda, latent_paged_mma, 10, has_latent_units<LatentAttentionPaged>, latent_scratch_mma});

[[maybe_unused]] const bool planned =
    launch_plans().add("latent_attention.mma", [](const DeviceLimits& limits, LaunchPlans& out) {
      for (const bool few_rows : {false, true})
        with_plan(limits, few_rows, [&](auto plan) {
          using P = decltype(plan);
          const std::string rows = concat(" of ", P::rows, " rows");
          out.add("latent_tiles_kernel" + rows, latent_tiles_kernel<P>, P::threads, P::bytes);
          out.add("latent_sum_kernel" + rows, latent_sum_kernel<P>, P::threads, 0);
        });
    });

}  // namespace
}  // namespace hone::attention
