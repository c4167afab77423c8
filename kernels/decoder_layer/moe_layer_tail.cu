// moe_layer_tail of one row: the persistent kernel (persistent.cuh) with the router and the chosen experts among its
// GEMMs.
//
// Use       decode passes of one sequence: bf16 models with SwiGLU experts (clamped or not) that are not quantized.
// Tile      persistent.cuh. gate_up: a tile pairs 8 gate rows with their 8 up rows, of one choice. down: a tile is 16
//           columns of x; the chunks of all choices are its chunks.
// Roles     persistent.cuh. Warp 0 of each block chooses the experts, once the router's logits are complete.
// Pipeline  persistent.cuh.
// Smem      persistent.cuh; routing: the choices, their weights, the logits and what router_choice.cuh needs.
// Numerics  persistent.cuh. The choice has the bits of router_forward. Each product of an expert is rounded to bf16,
//           then its activation; the choices are added in ascending order with fmaf from 0, then the residual.
// PDL       persistent.cuh.
// Limits    one row; as persistent.cuh.
#include "kernels/cuda/launch_plan.h"
#include "kernels/decoder_layer/moe_layer_tail.h"
#include "kernels/decoder_layer/persistent_launch.cuh"
#include "kernels/moe/fused_experts.cuh"
#include "kernels/moe/router_choice.cuh"

namespace hone {
namespace {

// The activation of each choice: y [k, F].
struct ExpertGluEpilogue {
  __nv_bfloat16* y;
  const __nv_bfloat16* bias;  // [E, 2F] or nullptr
  moe::ExpertActivation activation;
  int F;
  __device__ void store(float gate, float up, int choice, int expert, int tile, int r) const {
    const int column = tile * 8 + r;
    if (column >= F) return;
    const __nv_bfloat16* const b = bias ? bias + int64_t{expert} * 2 * F + column : nullptr;
    gate = rounded_sum(gate, b ? __bfloat162float(b[0]) : 0, b);
    up = rounded_sum(up, b ? __bfloat162float(b[F]) : 0, b);
    y[int64_t{choice} * F + column] = __float2bfloat16_rn(activation(gate, up));
  }
};

// y [N] = the weighted sum of the choices + residual.
struct CombineEpilogue {
  __nv_bfloat16* y;
  const __nv_bfloat16 *bias, *residual;  // bias: [E, N] or nullptr
  int N;
  // The product of a choice as it is without fusion; n: within the tile.
  __device__ float rounded(float total, int expert, int tile, int n) const {
    const int column = min(tile * 16 + n, N - 1);
    return rounded_sum(total, bias ? __bfloat162float(bias[int64_t{expert} * N + column]) : 0, bias);
  }
  __device__ void store(const float (&sum)[2], int tile, int r) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (const int n = tile * 16 + r + 8 * i; n < N)
        y[n] = __float2bfloat16_rn(sum[i] + __bfloat162float(residual[n]));
  }
};

// The GEMMs are attention output, router, gate_up, down, and q, k, v of the next layer.
struct PersistentMoeLayer {
  static constexpr bool routes = true;
  PersistentGemm products[5];
  ResidualEpilogue output;
  LinearEpilogue logits_output;
  ExpertGluEpilogue gated;
  CombineEpilogue down;
  QkvRopeEpilogue heads;
  LinearEpilogue qkv;
  bool rotates;
  int count, M;
  int x_bytes, sums_bytes;  // shared memory
  uint32_t* barrier;
  RouterShape router;
  const float* logits;

  struct Extras {
    ResidualEpilogue::Extra<1> sum;
    LinearEpilogue::Extra<1> linear;
    QkvRopeEpilogue::Extra<1> heads;
  };
  template <class Body>
  __device__ void with_output(int p, Extras& extras, Body body) const {
    if (p == 0)
      body(output, extras.sum);
    else if (p == 4 && rotates)
      body(heads, extras.heads);
    else
      body(p == 1 ? logits_output : qkv, extras.linear);
  }

  __host__ __device__ int routing_bytes() const {
    return 16 + 4 * (2 * router.num_choices + router.num_experts + router.words_per_warp());
  }
  __device__ PersistentRouting routing(char* memory) const {
    PersistentRouting out;
    out.chosen = reinterpret_cast<Mbarrier*>(memory);
    out.experts = reinterpret_cast<int*>(memory + 16);
    out.weights = reinterpret_cast<float*>(out.experts + router.num_choices);
    out.num_choices = router.num_choices;
    return out;
  }
  __device__ void route(const PersistentRouting& to) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float* const copied = to.weights + router.num_choices;
    // Other SMs have written the logits during this kernel: L1 may hold older ones.
    for (int e = lane; e < router.num_experts; e += 32) copied[e] = __ldcg(logits + e);
    __syncwarp();  // the logits are in shared memory
    route_token(to.experts, to.weights, {copied, router.num_experts, lane}, nullptr,
                reinterpret_cast<uint32_t*>(copied + router.num_experts), router);
  }
};

// A GEMM of the experts of one row.
PersistentGemm expert_gemm(const ExpertMatrices& matrices, const Tensor& x, int64_t k, bool by_chunks) {
  const Tensor& w = matrices.w;
  PersistentGemm out = planned_gemm(w.dim(1), w.dim(2), 1);
  out.w = numbers<const __nv_bfloat16>(w);
  out.x = numbers<const __nv_bfloat16>(x);
  out.w_stride = w.dim(2);
  out.x_stride = x.row_stride;
  out.matrix = w.row_stride;
  out.chunks_of_choices = by_chunks;
  if (by_chunks) {
    out.row_ranges = row_ranges_of(ResidualEpilogue{});
    out.chunks *= static_cast<int>(k);
    out.x_rows = static_cast<int>(k);
  } else {
    SwigluEpilogue pairs{};
    pairs.F = out.N / 2;
    out.row_ranges = row_ranges_of(pairs);
    out.choice_tiles = pairs.tiles<8>();
    out.n_tiles = out.choice_tiles * static_cast<int>(k);
    out.x_rows = 0;  // that of the router
  }
  return out;
}

bool run_fused(Context& context, const MoeLayerTail& args) {
  const int64_t C = args.x.dim(1), E = args.router.w.dim(0), k = args.num_choices, F = args.down.num_inputs();
  if (args.x.dim(0) != 1 || !few_rows_norm(C) || context.numerics() == Numerics::fast) return false;
  const ScratchScope scope(context);
  const auto take = [&](DType dtype, std::initializer_list<int64_t> dims) {
    return context.scratch().take(dtype, dims);
  };
  const Tensor mid = take(DType::bf16, {1, C}), logits = take(DType::f32, {1, E}),
               activated = take(DType::bf16, {k, F});
  check_shape(moe_layer_tail, "mixed", args.mixed, {1, args.output.w.dim(1)}, DType::bf16);
  check_product(moe_layer_tail, args.mixed, {}, args.output, C);
  check_product(moe_layer_tail, mid, args.norm, args.router, E);
  moe::check_fused_experts(routed_experts_of(args, mid, logits));

  PersistentMoeLayer chain{};
  chain.M = 1;
  chain.output = residual_epilogue(mid, args.output, args.x);
  chain.logits_output.to = GemmEpilogue(logits, args.router.bias, Tensor());
  chain.logits_output.N = static_cast<int>(E);
  chain.gated.y = numbers<__nv_bfloat16>(activated);
  chain.gated.bias = args.gate_up.bias ? numbers<const __nv_bfloat16>(args.gate_up.bias) : nullptr;
  chain.gated.activation = moe::ExpertActivation(args.clamped);
  chain.gated.F = static_cast<int>(F);
  chain.down.y = numbers<__nv_bfloat16>(args.x);
  chain.down.bias = args.down.bias ? numbers<const __nv_bfloat16>(args.down.bias) : nullptr;
  chain.down.residual = numbers<const __nv_bfloat16>(mid);
  chain.down.N = static_cast<int>(C);
  chain.logits = numbers<const float>(logits);
  const Tensor ids(nullptr, DType::i32, args.x.device, {1, k}), weights(nullptr, DType::f32, args.x.device, {1, k});
  chain.router = router_shape(logits, ids, weights, {}, args.rule);
  chain.products[0] = persistent_gemm(args.mixed, {}, args.output, chain.output, 1);
  chain.products[1] = persistent_gemm(mid, args.norm, args.router, chain.logits_output, 1);
  chain.products[2] = expert_gemm(args.gate_up, mid, k, false);
  chain.products[3] = expert_gemm(args.down, activated, k, true);
  chain.count = 4;
  NextProjection next(moe_layer_tail, args.x, args.next);
  const Tensor qkv = next.take_qkv(context);
  if (next.in_chain) {
    chain.rotates = next.rotates;
    chain.heads = next.heads;
    chain.qkv = next.linear(qkv);
    chain.products[chain.count++] = next.gemm(1);
  }
  const int blocks = num_blocks(chain, num_sms());
  const PersistentLaunch<PersistentMoeLayer> launch(partition(chain, blocks) + chain.routing_bytes());
  if (!launch.is_resident() || !launch.run(context, chain, blocks)) return false;
  next.finish(context, qkv);
  check_launch(moe_layer_tail);
  return true;
}

void forward(Context& context, const MoeLayerTail& args) {
  if (args.x.dim(0) > 0 && !run_fused(context, args)) moe_layer_tail_steps(context, args);
}

bool supports(const MoeLayerTail& args) {
  const auto streams = [](const ExpertMatrices& of) { return !of.quantized && moe::streams(of); };
  return fuses(args.mixed, {}, args.output) && fuses(args.x, args.norm, {args.router.w, {}}) && args.norm.weight &&
         (!args.router.bias || args.router.bias.dtype == DType::bf16) &&
         moe::has_expert_activation(args.activation, args.clamped) && streams(args.gate_up) && streams(args.down) &&
         args.gate_up.num_outputs() % 16 == 0;
}

[[maybe_unused]] const bool added =
    moe_layer_tail.add({"persistent", DeviceKind::cuda, forward, 10, supports, moe_layer_tail_scratch});

// The launches of layers of known models.
void plan_launches(const DeviceLimits& limits, LaunchPlans& out) {
  const DeviceLimitsScope scope(limits);
  struct Layer {
    const char* name;
    int64_t hidden, heads, inner, experts, choices, qkv;
  };
  for (const Layer& of : {Layer{"OLMoE", 2048, 2048, 1024, 64, 8, 6144},
                          {"Qwen3-30B-A3B", 2048, 4096, 768, 128, 8, 5120},
                          {"Mixtral", 4096, 4096, 14336, 8, 2, 6144},
                          {"gpt-oss", 2880, 4096, 2880, 32, 4, 5120}}) {
    PersistentMoeLayer chain{};
    chain.M = 1;
    chain.router.num_experts = static_cast<int>(of.experts);
    chain.router.num_choices = static_cast<int>(of.choices);
    chain.router.num_groups = 1;
    const auto add = [&](int64_t N, int64_t K) -> PersistentGemm& {
      return chain.products[chain.count++] = planned_gemm(N, K, 1);
    };
    add(of.hidden, of.heads);
    add(of.experts, of.hidden);
    PersistentGemm& gate_up = add(2 * of.inner, of.hidden);
    gate_up.choice_tiles = gate_up.n_tiles;
    gate_up.n_tiles *= static_cast<int>(of.choices);
    PersistentGemm& down = add(of.hidden, of.inner);
    down.chunks_of_choices = true;
    down.chunks *= static_cast<int>(of.choices);
    down.x_rows = static_cast<int>(of.choices);
    add(of.qkv, of.hidden);
    const PersistentLaunch<PersistentMoeLayer> launch(partition(chain, num_blocks(chain, num_sms())) +
                                                      chain.routing_bytes());
    if (launch.kernel)
      out.add(concat("persistent_layer_kernel of experts, ", of.name, ", ", launch.stages, " stages"), launch.kernel,
              launch.threads, static_cast<size_t>(launch.bytes), PersistentLimits::static_bytes);
  }
}
[[maybe_unused]] const bool planned = launch_plans().add("moe_layer_tail.persistent", plan_launches);

}  // namespace
}  // namespace hone
