// routed_experts for few tokens in three launches: routing; the first product, which gathers the tokens' rows and
// applies the activation; the second product, which adds a token's experts.
//
// Use       decode passes of bf16 models with SwiGLU experts (clamped or not): at most 128 tokens and 8 choices per
//           expert on average.
// Tile      few_rows.cuh. gate_up: 8 gate rows and their 8 up rows of w. down: a block has 16 columns of y for all
//           tokens, and its warps take turns at the tiles of the experts.
// Roles     up to 8 warps per block, all alike (few_rows.cuh).
// Pipeline  few_rows.cuh. gate_up: one block per SM; the items of all experts are dealt to the warps of the grid.
// Smem      few_rows.cuh: up to 8 warps * 6 stages, 209 KB on Hopper; down: 32 bytes per choice more.
// Numerics  the bits of the separate ops: each product rounded to bf16, then its activation; a token's choices are
//           added in ascending order with fmaf from 0, then the residual.
// PDL       gate_up: griddep_wait() first, then triggers dependents. So routing has ended when down starts, and down
//           fills its rings with w before griddep_wait().
// Limits    bf16, silu, rows of x and w 16-byte aligned, both matrices in one format.
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/pdl.cuh"
#include "kernels/moe/few_rows.cuh"
#include "kernels/moe/fused_experts.cuh"

namespace hone::moe {
namespace {

constexpr int most_warps = 8;

template <class Strip, int Groups, int Stages>
__global__ void __launch_bounds__(32 * most_warps, 1)
    gate_up_kernel(StripProduct of, FewRouting routing, ExpertActivation activation, __nv_bfloat16* y, int F, int k) {
  using Pipeline = StripPipeline<Strip, Groups, Stages>;
  extern __shared__ __align__(128) char shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32,
            grid = static_cast<int>(gridDim.x), strips = (F + 7) / 8;
  hopper::griddep_wait();  // the routing is written, and x
  hopper::griddep_launch_dependents();
  const StripItems items{routing.tiles,
                         __ldcg(routing.num_tiles) * strips,
                         strips,
                         0,
                         static_cast<int>(blockIdx.x) + warp * grid,
                         grid * warps,
                         k};
  Pipeline pipeline(of, items, shared);
  pipeline.start();
  pipeline.run([&](const int4& tile, int strip, const typename Pipeline::Sums& totals) {
    const int n = strip * 8 + pipeline.lane / 4;
    if (n >= F) return;
#pragma unroll
    for (int i = 0; i < Groups; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int m = 8 * i + pipeline.lane % 4 * 2 + e;
        if (m >= tile.z) continue;
        const float gate = pipeline.stored(totals[i][e], tile.x, n),
                    up = pipeline.stored(totals[i][2 + e], tile.x, F + n);
        y[int64_t{tile.y + m} * F + n] = __float2bfloat16_rn(activation(gate, up));
      }
  });
}

// The output: y [T, N] = sum over the choices of a token, + residual.
struct FewOutput {
  __nv_bfloat16* y;
  const __nv_bfloat16* residual;  // or nullptr
  int64_t y_stride, residual_stride;
  int tokens, k;
};

template <class Strip, int Groups, int Stages>
__global__ void __launch_bounds__(32 * most_warps, 1)
    down_kernel(StripProduct of, FewRouting routing, FewOutput output) {
  using Pipeline = StripPipeline<Strip, Groups, Stages>;
  extern __shared__ __align__(128) char shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32,
            strip = static_cast<int>(blockIdx.x);
  auto* const results =
      reinterpret_cast<__nv_bfloat16*>(shared + warps * Stages * Pipeline::bytes_of_stage(of.tile_rows));  // [P, 16]
  hopper::griddep_launch_dependents();
  // The tiles are complete: the kernel before has waited for them before it let this one start.
  const StripItems items{routing.tiles, __ldcg(routing.num_tiles), 1, strip, warp, warps, output.k};
  Pipeline pipeline(of, items, shared);
  pipeline.start_early([] { hopper::griddep_wait(); });  // x is written
  pipeline.run([&](const int4& tile, int, const typename Pipeline::Sums& totals) {
#pragma unroll
    for (int i = 0; i < Groups; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int m = 8 * i + pipeline.lane % 4 * 2 + e % 2, r = pipeline.lane / 4 + e / 2 * 8, n = strip * 16 + r;
        if (m < tile.z && n < of.N)
          results[(tile.y + m) * 16 + r] = __float2bfloat16_rn(pipeline.stored(totals[i][e], tile.x, n));
      }
  });
  __syncthreads();  // the results of all choices are in shared memory
  for (int i = static_cast<int>(threadIdx.x); i < output.tokens * 16; i += static_cast<int>(blockDim.x)) {
    const int t = i / 16, r = i % 16, n = strip * 16 + r;
    if (n >= of.N) continue;
    float sum = 0;
    for (int c = 0; c < output.k; ++c)
      sum = fmaf(routing.weights[t * output.k + c],
                 __bfloat162float(results[routing.places[t * output.k + c] * 16 + r]), sum);
    if (output.residual) sum += __bfloat162float(output.residual[t * output.residual_stride + n]);
    output.y[t * output.y_stride + n] = __float2bfloat16_rn(sum);
  }
}

// The most warps, then the most stages, that fit; 0 warps: nothing fits.
struct FewLaunch {
  int warps = 0, stages = 0;
  size_t bytes = 0;
  // extra: bytes besides the rings.
  FewLaunch(const DeviceLimits& limits, int stage_bytes, size_t extra) {
    for (warps = most_warps; warps > 0; warps /= 2)
      for (const int depth : {6, 4, 3, 2}) {
        stages = depth;
        bytes = static_cast<size_t>(warps * stages * stage_bytes) + extra;
        if (bytes <= limits.shared_per_block) return;
      }
  }
};

size_t result_bytes(int64_t choices) { return static_cast<size_t>(choices) * 16 * sizeof(__nv_bfloat16); }

// Calls use(std::integral_constant<int, Stages>).
template <class Use>
void with_stages(int stages, Use use) {
  if (stages == 6)
    use(std::integral_constant<int, 6>());
  else if (stages == 4)
    use(std::integral_constant<int, 4>());
  else if (stages == 3)
    use(std::integral_constant<int, 3>());
  else
    use(std::integral_constant<int, 2>());
}

StripProduct product_of(const ExpertMatrices& matrices, const Tensor& x) {
  const Tensor& w = matrices.numbers();
  StripProduct out{};
  out.w = w.data;
  out.scales = matrices.quantized ? numbers<const float>(matrices.quantized.scales) : nullptr;
  out.bias = matrices.bias ? numbers<const __nv_bfloat16>(matrices.bias) : nullptr;
  out.x = numbers<const __nv_bfloat16>(x);
  out.matrix = w.row_stride;
  out.x_stride = x.row_stride;
  out.N = static_cast<int>(w.dim(1));
  out.K = static_cast<int>(w.dim(2));
  return out;
}

// The two products. Returns false and launches nothing if their rings do not fit.
template <class Strip, int Groups>
bool launch_products(Context& context, const RoutedExperts& args, const FewRouting& routing, const Tensor& activated) {
  const int F = static_cast<int>(args.down.num_inputs()), T = static_cast<int>(args.x.dim(0)),
            tile_rows = std::min(T, 8 * Groups),
            stage_bytes = StripPipeline<Strip, Groups, 2>::bytes_of_stage(tile_rows);
  const FewLaunch first(device_limits(), stage_bytes, 0),
      second(device_limits(), stage_bytes, result_bytes(activated.dim(0)));
  if (first.warps == 0 || second.warps == 0 || !route_few(context, args, routing, tile_rows)) return false;
  const cudaStream_t stream = cuda_stream(context);
  StripProduct gate_up = product_of(args.gate_up, args.x);
  gate_up.tile_rows = tile_rows;
  gate_up.rows = routing.tokens;
  if (T == 1) {  // all positions have one token: no row is looked up
    gate_up.rows = nullptr;
    gate_up.x_stride = 0;
  }
  gate_up.second = F;
  const ExpertActivation activation(args.clamped);
  with_stages(first.stages, [&](auto stages) {
    const auto kernel = gate_up_kernel<Strip, Groups, stages()>;
    allow_shared_memory(kernel, first.bytes);
    launch_pdl(stream, kernel, dim3(static_cast<unsigned>(num_sms())), 32 * first.warps, static_cast<int>(first.bytes),
               1, gate_up, routing, activation, numbers<__nv_bfloat16>(activated), F,
               static_cast<int>(args.num_choices));
  });
  FewOutput output{};
  output.y = numbers<__nv_bfloat16>(args.y);
  output.residual = args.residual ? numbers<const __nv_bfloat16>(args.residual) : nullptr;
  output.y_stride = args.y.row_stride;
  output.residual_stride = args.residual.row_stride;
  output.tokens = T;
  output.k = static_cast<int>(args.num_choices);
  StripProduct down = product_of(args.down, activated);
  down.tile_rows = tile_rows;
  with_stages(second.stages, [&](auto stages) {
    const auto kernel = down_kernel<Strip, Groups, stages()>;
    allow_shared_memory(kernel, second.bytes);
    launch_pdl(stream, kernel, dim3(static_cast<unsigned>((down.N + 15) / 16)), 32 * second.warps,
               static_cast<int>(second.bytes), 1, down, routing, output);
  });
  check_launch(routed_experts);
  return true;
}

// Calls use(Strip()) with the strips of this format.
template <class Use>
bool with_strip(const ExpertMatrices& matrices, Use use) {
  if (!matrices.quantized) return use(Bf16Strip());
  return matrices.quantized.format == QuantFormat::int8 ? use(ByteStrip<Int8Pairs>()) : use(ByteStrip<Fp8Pairs>());
}

// A token chooses an expert once, so up to 8 tokens make tiles of up to 8 rows.
bool run_few(Context& context, const RoutedExperts& args) {
  const int64_t T = args.x.dim(0), k = args.num_choices, P = T * k;
  if (T > max_few_tokens || P > max_few_choices || P > 8 * args.logits.dim(1)) return false;
  const ScratchScope scope(context);
  const auto take = [&](DType dtype, std::initializer_list<int64_t> dims) {
    return context.scratch().take(dtype, dims);
  };
  FewRouting routing{};
  routing.tiles = static_cast<int4*>(take(DType::i32, {P, 4}).data);
  routing.num_tiles = numbers<int32_t>(take(DType::i32, {1}));
  routing.tokens = numbers<int32_t>(take(DType::i32, {P}));
  routing.places = numbers<int32_t>(take(DType::i32, {P}));
  routing.weights = numbers<float>(take(DType::f32, {P}));
  const Tensor activated = take(DType::bf16, {P, args.down.num_inputs()});
  return with_strip(args.gate_up, [&](auto strip) {
    using Strip = decltype(strip);
    return T <= 8 ? launch_products<Strip, 1>(context, args, routing, activated)
                  : launch_products<Strip, 2>(context, args, routing, activated);
  });
}

void forward(Context& context, const RoutedExperts& args) {
  check_fused_experts(args);
  if (args.x.dim(0) == 0) return;
  if (!run_few(context, args)) routed_experts_steps(context, args);
}

bool supports(const RoutedExperts& args) {
  const bool same_format = static_cast<bool>(args.gate_up.quantized) == static_cast<bool>(args.down.quantized) &&
                           args.gate_up.quantized.format == args.down.quantized.format;
  return args.x.dtype == DType::bf16 && has_expert_activation(args.activation, args.clamped) && same_format &&
         args.x.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args.x.data) % 16 == 0 && streams(args.gate_up) &&
         streams(args.down);
}

[[maybe_unused]] const bool added =
    routed_experts.add({"few_rows", DeviceKind::cuda, forward, 5, supports, routed_experts_scratch});

template <class Strip, int Groups>
void plan_strips(const DeviceLimits& limits, LaunchPlans& out, const char* weights) {
  constexpr int least = 8 * Groups - 7;
  for (const int rows : {least, least + 3, 8 * Groups})
    for (const int64_t choices : {int64_t{1}, int64_t{64}, max_few_choices}) {
      const FewLaunch launch(limits, StripPipeline<Strip, Groups, 2>::bytes_of_stage(rows), result_bytes(choices));
      if (launch.warps == 0) continue;
      with_stages(launch.stages, [&](auto stages) {
        const std::string what = concat(weights, ", ", rows, " rows, ", choices, " choices");
        out.add(concat("down_kernel ", what), down_kernel<Strip, Groups, stages()>, 32 * launch.warps, launch.bytes);
        out.add(concat("gate_up_kernel ", what), gate_up_kernel<Strip, Groups, stages()>, 32 * launch.warps,
                launch.bytes - result_bytes(choices));
      });
    }
}
void plan_launches(const DeviceLimits& limits, LaunchPlans& out) {
  plan_strips<Bf16Strip, 1>(limits, out, "bf16");
  plan_strips<Bf16Strip, 2>(limits, out, "bf16");
  plan_strips<ByteStrip<Fp8Pairs>, 1>(limits, out, "fp8");
  plan_strips<ByteStrip<Fp8Pairs>, 2>(limits, out, "fp8");
  plan_strips<ByteStrip<Int8Pairs>, 1>(limits, out, "int8");
  plan_strips<ByteStrip<Int8Pairs>, 2>(limits, out, "int8");
}
[[maybe_unused]] const bool planned = launch_plans().add("routed_experts.few_rows", plan_launches);

}  // namespace
}  // namespace hone::moe
