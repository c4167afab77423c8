// decoder_layer_tail on all GPUs: one persistent kernel for few rows if this stream owns the device's cooperative
// barrier; else the separate steps, with the same bits.
#include "kernels/cuda/launch_plan.h"
#include "kernels/decoder_layer/persistent_launch.cuh"

namespace hone {
namespace {

// The GEMMs are attention output, gate_up, down, and q, k, v of the next layer.
struct PersistentLayer {
  static constexpr bool routes = false;
  PersistentGemm products[4];
  ResidualEpilogue output, down;
  SwigluEpilogue gated;
  QkvRopeEpilogue heads;
  LinearEpilogue qkv;  // if q and k have norms: a kernel of its own finishes them
  bool rotates;        // heads, not qkv
  int count, M;
  int x_bytes, sums_bytes;  // shared memory
  uint32_t* barrier;

  struct Extras {
    ResidualEpilogue::Extra<1> sum;
    SwigluEpilogue::Extra<1> gated;
    QkvRopeEpilogue::Extra<1> heads;
    LinearEpilogue::Extra<1> qkv;
  };
  template <class Body>
  __device__ void with_output(int p, Extras& extras, Body body) const {
    if (p == 1)
      body(gated, extras.gated);
    else if (p < 3)
      body(p == 0 ? output : down, extras.sum);
    else if (rotates)
      body(heads, extras.heads);
    else
      body(qkv, extras.qkv);
  }
};

bool run_fused(Context& context, const DecoderLayerTail& args) {
  const int64_t M = args.x.dim(0), C = args.x.dim(1);
  if (M > max_rows_norm_in_gemm || !few_rows_norm(C) || context.numerics() == Numerics::fast) return false;
  const ScratchScope scope(context);
  const Tensor mid = context.scratch().take(args.x.dtype, args.x.dims()),
               activated = context.scratch().take(args.x.dtype, {M, args.mlp.down.w.dim(1)});
  check_shape(decoder_layer_tail, "mixed", args.mixed, {M, args.output.w.dim(1)}, DType::bf16);
  check_product(decoder_layer_tail, args.mixed, {}, args.output, C);
  check_product(decoder_layer_tail, activated, {}, args.mlp.down, C);
  PersistentLayer chain{};
  chain.M = static_cast<int>(M);
  chain.output = residual_epilogue(mid, args.output, args.x);
  chain.down = residual_epilogue(args.x, args.mlp.down, mid);
  chain.gated = gated_output(decoder_layer_tail, activated, mid, args.mlp.norm, args.mlp.gate_up);
  chain.products[0] = persistent_gemm(args.mixed, {}, args.output, chain.output, chain.M);
  chain.products[1] = persistent_gemm(mid, args.mlp.norm, args.mlp.gate_up, chain.gated, chain.M);
  chain.products[2] = persistent_gemm(activated, {}, args.mlp.down, chain.down, chain.M);
  chain.count = 3;
  NextProjection next(decoder_layer_tail, args.x, args.next);
  const Tensor qkv = next.take_qkv(context);
  if (next.in_chain) {
    chain.rotates = next.rotates;
    chain.heads = next.heads;
    chain.qkv = next.linear(qkv);
    chain.products[chain.count++] = next.gemm(chain.M);
  }
  const int blocks = num_blocks(chain, num_sms());
  const PersistentLaunch<PersistentLayer> launch(partition(chain, blocks));
  if (!launch.is_resident() || !launch.run(context, chain, blocks)) return false;
  next.finish(context, qkv);
  check_launch(decoder_layer_tail);
  return true;
}

void between(Context& context, const DecoderLayerTail& args) {
  if (args.x.dim(0) > 0 && !run_fused(context, args)) decoder_layer_tail_steps(context, args);
}

bool supports(const DecoderLayerTail& args) {
  return fuses(args.mixed, {}, args.output) && fuses(args.x, args.mlp.norm, args.mlp.gate_up) && args.mlp.norm.weight &&
         args.mlp.gate_up.w.dim(0) % 16 == 0 && fuses(args.x, {}, args.mlp.down);
}

[[maybe_unused]] const bool added =
    decoder_layer_tail.add({"persistent", DeviceKind::cuda, between, 10, supports, decoder_layer_tail_scratch});

// The launches of layers with the widths of known models. Addresses and epilogues do not matter here.
void plan_launches(const DeviceLimits& limits, LaunchPlans& out) {
  const DeviceLimitsScope scope(limits);
  struct Width {
    int64_t hidden, heads, mlp, qkv;
  };
  for (const Width& w : {Width{576, 576, 1536, 960}, Width{896, 896, 4864, 1152}, Width{1536, 1536, 8960, 2048},
                         Width{4096, 4096, 14336, 6144}})
    for (int M = 1; M <= max_rows_norm_in_gemm; ++M) {
      PersistentLayer chain{};
      chain.M = M;
      for (const auto& [N, K] :
           {std::pair{w.hidden, w.heads}, {2 * w.mlp, w.hidden}, {w.hidden, w.mlp}, {w.qkv, w.hidden}})
        chain.products[chain.count++] = planned_gemm(N, K, M);
      const PersistentLaunch<PersistentLayer> launch(partition(chain, num_blocks(chain, num_sms())));
      if (launch.kernel)
        out.add(concat("persistent_layer_kernel M = ", M, ", hidden ", w.hidden, ", ", launch.stages, " stages"),
                launch.kernel, launch.threads, static_cast<size_t>(launch.bytes), PersistentLimits::static_bytes);
    }
}
[[maybe_unused]] const bool planned = launch_plans().add("decoder_layer_tail.persistent", plan_launches);

}  // namespace
}  // namespace hone
