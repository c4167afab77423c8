// latent_attention_backward for bf16 on any GPU: the plans of the kernels (backward.cuh), their choice by the shared
// memory of the device, and the sum of splits.
//
// Use       bf16 tensors with 16-byte aligned rows.
// Tile      sum_parts_kernel: two numbers of drows per thread. The main kernels: backward.cuh.
// Roles     256 threads, all alike.
// Pipeline  none.
// Smem      none.
// Numerics  splits in ascending order, rounded to bf16 once.
// PDL       none.
// Limits    as tiles.cuh.
#include "kernels/attention/latent/backward.cuh"
#include "kernels/cuda/launch_plan.h"

namespace hone::attention {
namespace {

constexpr int sum_threads = 256, max_splits = 8;

__global__ void __launch_bounds__(sum_threads)
    sum_parts_kernel(const __grid_constant__ LatentBackwardCall<Bf16> call, const LatentGradientWork work) {
  const AttentionCall<Bf16>& of = call.forward.of;
  const int64_t i = (int64_t{blockIdx.x} * sum_threads + threadIdx.x) * 2, size = int64_t{of.tokens} * of.dim;
  if (i >= size) return;
  float2 sum = *reinterpret_cast<const float2*>(work.parts + i);
  for (int split = 1; split < work.splits; ++split) {
    const float2 part = *reinterpret_cast<const float2*>(work.parts + split * size + i);
    sum.x += part.x;
    sum.y += part.y;
  }
  *reinterpret_cast<uint32_t*>(call.drows + i / of.dim * call.drows_stride + i % of.dim) = pack_bf16(sum.x, sum.y);
}

// Calls body(P{}) with the plan of a kernel. The last plans fit the 99 KB of capability 8.6, 8.9 and 12.0: 73 and 79
// KB.
template <class Body>
void with_dq_plan(const DeviceLimits& limits, Body body) {
  with_fitting_plan<LatentGradientPlan<false, 4, 64>, LatentGradientPlan<false, 2, 64>,
                    LatentGradientPlan<false, 1, 32>>(limits, body);
}
template <class Body>
void with_drows_plan(const DeviceLimits& limits, Body body) {
  with_fitting_plan<LatentGradientPlan<true, 4, 64>, LatentGradientPlan<true, 2, 32>, LatentGradientPlan<true, 2, 16>>(
      limits, body);
}

template <class P>
void launch_dq(Context& context, const LatentBackwardCall<Bf16>& call) {
  const AttentionCall<Bf16>& of = call.forward.of;
  allow_shared_memory(latent_dq_kernel<P>, P::bytes);
  latent_dq_kernel<P><<<static_cast<unsigned>(tile_bound(of.tokens, of.sequences, of.group, P::own)), P::threads,
                        P::bytes, cuda_stream(context)>>>(call);
}

int num_splits(int tiles) { return std::clamp(2 * num_sms() / std::max(tiles, 1), 1, max_splits); }

template <class P>
void launch_drows(Context& context, const LatentBackwardCall<Bf16>& call) {
  const AttentionCall<Bf16>& of = call.forward.of;
  const cudaStream_t stream = cuda_stream(context);
  const int tiles = tile_bound(of.tokens, of.sequences, 1, P::own);
  LatentGradientWork work{};
  work.splits = num_splits(tiles);
  if (work.splits > 1)
    work.parts = numbers<float>(context.scratch().take(DType::f32, {work.splits, of.tokens, of.dim}));
  allow_shared_memory(latent_drows_kernel<P>, P::bytes);
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(work.splits));
  latent_drows_kernel<P><<<grid, P::threads, P::bytes, stream>>>(call, work);
  if (work.splits == 1) return;
  const int64_t pairs = int64_t{of.tokens} * of.dim / 2;
  sum_parts_kernel<<<static_cast<unsigned>((pairs + sum_threads - 1) / sum_threads), sum_threads, 0, stream>>>(call,
                                                                                                               work);
}

void backward(Context& context, const LatentAttentionBackward& args) {
  const ScratchScope scope(context);
  const LatentBackwardCall<Bf16> call = latent_backward_call_of<Bf16>(context, args);
  for (const Tensor& x : {args.dq, args.drows, args.dout, args.out, args.q, args.rows})
    HONE_CHECK(reads_in_units(x), "latent_attention_backward: the rows of each tensor must be 16-byte aligned");
  if (call.forward.of.tokens == 0) return;
  launch_latent_delta(context, call);
  with_dq_plan(device_limits(), [&](auto plan) { launch_dq<decltype(plan)>(context, call); });
  with_drows_plan(device_limits(), [&](auto plan) { launch_drows<decltype(plan)>(context, call); });
  check_launch(latent_attention_backward);
}

// delta and the parts of drows.
size_t scratch_of(const LatentAttentionBackward& args) {
  const int64_t T = args.q.dim(0);
  int64_t splits = 1;
  with_drows_plan(device_limits(), [&](auto plan) {
    splits = num_splits(tile_bound(static_cast<int>(T), static_cast<int>(args.offsets.dim(0) - 1), 1, plan.own));
  });
  const int64_t parts = splits > 1 ? splits * T * args.q.dim(2) : 0;
  return static_cast<size_t>(T * args.q.dim(1) + parts) * sizeof(float);
}

bool takes(const LatentAttentionBackward& args) {
  const int64_t width = args.q.dim(2), rank = args.out.dim(2);
  return args.q.dtype == DType::bf16 && width % 8 == 0 && width <= 576 && rank % 8 == 0 && rank <= 512;
}

[[maybe_unused]] const bool added =
    latent_attention_backward.add({"mma", DeviceKind::cuda, backward, 10, takes, scratch_of});

[[maybe_unused]] const bool planned =
    launch_plans().add("latent_attention_backward.mma", [](const DeviceLimits& limits, LaunchPlans& out) {
      with_dq_plan(limits, [&](auto plan) {
        using P = decltype(plan);
        out.add(concat("latent_dq_kernel of ", P::own, " rows"), latent_dq_kernel<P>, P::threads, P::bytes);
      });
      with_drows_plan(limits, [&](auto plan) {
        using P = decltype(plan);
        out.add(concat("latent_drows_kernel of ", P::own, " keys"), latent_drows_kernel<P>, P::threads, P::bytes);
      });
    });

}  // namespace
}  // namespace hone::attention
