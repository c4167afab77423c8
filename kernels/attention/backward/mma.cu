// attention_backward for bf16 with mma.sync: delta, the main kernel's plans and their choice, and the sum of splits.
//
// Use       bf16 where backward_sm90.cu does not apply.
// Tile      sum_splits: four gradients of dk or dv per thread. The main kernel: key_tiles.cuh.
// Roles     256 threads, all alike.
// Pipeline  none.
// Smem      none.
// Numerics  splits in ascending order, scaled and rounded to bf16 once.
// PDL       none.
// Limits    head dimension a multiple of 8 up to 256; rows 16-byte aligned.
#include "kernels/attention/backward/key_tiles.cuh"
#include "kernels/cuda/launch_plan.h"

namespace hone::attention {
namespace {

constexpr int sum_threads = 256;

// dk and dv as the sums of the splits' parts.
__global__ void __launch_bounds__(sum_threads) sum_splits(const __grid_constant__ KeyTileCall call, int width) {
  const AttentionCall<Bf16>& forward = call.tensors.forward;
  const int64_t rows = int64_t{2} * forward.tokens * forward.kv_heads,  // dk, then dv
      i = int64_t{blockIdx.x} * sum_threads + threadIdx.x, row = i / (width / 4);
  const int column = static_cast<int>(i % (width / 4)) * 4;
  if (row >= rows || column >= forward.dim) return;
  float sum[4];
  load_vec(sum, call.key_sums + row * width + column);
  for (int split = 1; split < call.splits; ++split) {
    float part[4];
    load_vec(part, call.key_sums + (split * rows + row) * width + column);
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[j] += part[j];
  }
  const bool values = row >= rows / 2;
  const int64_t place = values ? row - rows / 2 : row, token = place / forward.kv_heads;
#pragma unroll
  for (int j = 0; j < 4; ++j) sum[j] *= values ? 1.0f : forward.scale;
  Bf16* const to =
      values ? call.tensors.dv + token * call.tensors.dv_stride : call.tensors.dk + token * call.tensors.dk_stride;
  store_vec(to + place % forward.kv_heads * forward.dim + column, sum);
}

template <class P>
void launch(Context& context, const BackwardCall<Bf16>& tensors, const AttentionShape& shape) {
  const AttentionCall<Bf16>& forward = tensors.forward;
  const int64_t heads = int64_t{forward.kv_heads} * forward.group;
  KeyTileCall call{};
  call.tensors = tensors;
  call.query_tiles = forward.tokens / P::queries + forward.sequences;
  call.splits = head_splits(forward.tokens, forward.kv_heads, forward.group, shape, P::keys, num_sms() * P::blocks);
  call.list = make_list(context, forward, P::keys);
  const int64_t places = heads * call.query_tiles * P::parts;
  call.dq_sums = numbers<float>(context.scratch().take(DType::f32, {places, P::queries * P::columns}));
  const Tensor turns = context.scratch().take(DType::i32, {places, P::warps});
  call.turns = numbers<int>(turns);
  context.zero(turns);
  if (call.splits > 1)
    call.key_sums = numbers<float>(
        context.scratch().take(DType::f32, {call.splits * 2, forward.tokens, forward.kv_heads, P::width}));
  const cudaStream_t stream = cuda_stream(context);
  allow_shared_memory(key_tile_kernel<P>, P::bytes);
  const int64_t items =
      (int64_t{forward.tokens} / P::keys + forward.sequences) * forward.kv_heads * call.splits * P::parts;
  key_tile_kernel<P><<<static_cast<unsigned>(items), P::threads, P::bytes, stream>>>(call);
  if (call.splits == 1) return;
  const int64_t vectors = int64_t{2} * forward.tokens * forward.kv_heads * P::width / 4;
  sum_splits<<<static_cast<unsigned>((vectors + sum_threads - 1) / sum_threads), sum_threads, 0, stream>>>(call,
                                                                                                           P::width);
}

// Calls body(P{}) with the plan of the main kernel for a head dimension. Arguments of a plan: width, warps, groups of
// 16 keys per warp, queries, stages, blocks per SM. The last plan of a width fits the 99 KB of capability 8.6, 8.9 and
// 12.0: 65, 73 and 67 KB.
template <class Body>
void with_key_tile_plan(const DeviceLimits& limits, int dim, Body body) {
  if (dim <= 64)
    return with_fitting_plan<KeyTilePlan<64, 8, 1, 128, 2, 1>, KeyTilePlan<64, 4, 2, 32, 2, 2>>(limits, body);
  if (dim <= 128)
    return with_fitting_plan<KeyTilePlan<128, 8, 1, 64, 2, 1>, KeyTilePlan<128, 4, 1, 32, 2, 2>>(limits, body);
  with_fitting_plan<KeyTilePlan<256, 4, 1, 32, 2, 1>, KeyTilePlan<256, 2, 1, 16, 2, 1>>(limits, body);
}

void backward(Context& context, const AttentionBackward& args) {
  const ScratchScope scope(context);
  const BackwardCall<Bf16> call = backward_call_of<Bf16>(context, args);
  for (const Tensor& x : {args.dq, args.dk, args.dv, args.dout, args.out, args.q, args.k, args.v})
    HONE_CHECK(reads_in_units(x), "attention_backward: the rows of each tensor must be 16-byte aligned");
  if (call.forward.tokens == 0) return;
  launch_delta<8>(context, call);
  launch_sink_gradients(context, call, args);
  with_key_tile_plan(device_limits(), call.forward.dim,
                     [&](auto plan) { launch<decltype(plan)>(context, call, args.shape); });
  check_launch(attention_backward);
}

[[maybe_unused]] const bool added =
    attention_backward.add({"mma", DeviceKind::cuda, backward, 10, [](const AttentionBackward& args) {
                              return args.shape.softcap == 0 && has_units(args.q);
                            }});

[[maybe_unused]] const bool planned =
    launch_plans().add("attention_backward.mma", [](const DeviceLimits& limits, LaunchPlans& out) {
      for (const int dim : {64, 128, 256})
        with_key_tile_plan(limits, dim, [&](auto plan) {
          using P = decltype(plan);
          out.add(concat("key_tile_kernel D = ", dim), key_tile_kernel<P>, P::threads, P::bytes, P::static_bytes);
        });
    });

}  // namespace
}  // namespace hone::attention
