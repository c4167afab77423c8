// CUDA bodies of router_forward and router_backward.
//
// Use       every shape.
// Tile      one token per warp.
// Roles     up to 4 warps per block, all alike.
// Pipeline  none.
// Smem      dynamic, per warp: forward 2 * E + num_groups + k words (scores, keys, ranks of groups, choices);
//           backward E words (scores).
// Numerics  f32. Keys are compared as integers of the same order, so a choice is exact: among equal keys the lower
//           expert wins. Sums over experts: router_token.cuh; sums over choices: ascending.
// PDL       none.
// Limits    2 * E + num_groups + k words are at most 48 KB.
#include "kernels/check_shape.h"
#include "kernels/moe/router_choice.cuh"

namespace hone {
namespace {

__global__ void __launch_bounds__(32 * router_warps)
    forward_kernel(int32_t* experts, float* weights, const float* logits, const float* bias, RouterShape s) {
  extern __shared__ uint32_t shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            warps = static_cast<int>(blockDim.x) / 32;
  const int64_t t = int64_t{blockIdx.x} * warps + warp;
  if (t >= s.tokens) return;
  route_token(experts + t * s.experts_stride, weights + t * s.weights_stride,
              {logits + t * s.logits_stride, s.num_experts, lane}, bias, shared + warp * s.words_per_warp(), s);
}

// The formulas are those of router.cpp.
__global__ void __launch_bounds__(32 * router_warps)
    backward_kernel(float* dlogits, const float* dweights, const int32_t* experts, const float* logits, RouterShape s) {
  extern __shared__ float gradients[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, E = s.num_experts,
            warps = static_cast<int>(blockDim.x) / 32;
  float* const scores = gradients + warp * E;
  const int64_t t = int64_t{blockIdx.x} * warps + warp;
  if (t >= s.tokens) return;
  const TokenLogits token{logits + t * s.logits_stride, E, lane};
  const int32_t* const chosen = experts + t * s.experts_stride;
  const float* const grads = dweights + t * s.weights_stride;
  float* const out = dlogits + t * s.dlogits_stride;
  for (int c = 0; c < s.num_choices; ++c)
    if (chosen[c] < 0 || chosen[c] >= E) return;
  store_scores(scores, token, s.scores);
  const ChosenScores score(token.logits, scores, chosen, s);
  const float sum = score.normalizer(s);
  float mean = 0, dot = 0;
  if (s.normalize)
    for (int c = 0; c < s.num_choices; ++c) mean += grads[c] * (score(c) / sum);
  for (int c = 0; c < s.num_choices; ++c) dot += s.scale * (grads[c] - mean) / sum * score(c);
  token.each([&](int e) {
    float gradient = s.scores == RouterScores::softmax ? -scores[e] * dot : 0.0f;
    for (int c = 0; c < s.num_choices; ++c) {
      if (chosen[c] != e) continue;
      const float value = score(c), slope = s.scale * (grads[c] - mean) / sum;
      gradient = s.scores == RouterScores::sigmoid ? slope * value * (1.0f - value) : value * (slope - dot);
    }
    out[e] = gradient;
  });
}

// As many warps per block as fit 48 KB of shared memory.
struct RouterLaunch {
  int warps;
  unsigned blocks;
  size_t bytes;
  RouterLaunch(const OpBase& op, const RouterShape& s, int words_per_warp) {
    constexpr int most_words = 48 * 1024 / sizeof(uint32_t);
    HONE_CHECK(words_per_warp <= most_words, op.name(), ": ", s.num_experts, " experts are too many on cuda");
    warps = std::min(router_warps, most_words / words_per_warp);
    blocks = static_cast<unsigned>((s.tokens + warps - 1) / warps);
    bytes = static_cast<size_t>(warps * words_per_warp) * sizeof(uint32_t);
  }
};

void forward(Context& context, const RouterForward& args) {
  check_router_forward(args);
  const RouterShape s = router_shape(args.logits, args.experts, args.weights, args.bias, args.rule);
  if (s.tokens == 0) return;
  const RouterLaunch launch(router_forward, s, s.words_per_warp());
  forward_kernel<<<launch.blocks, 32 * launch.warps, launch.bytes, cuda_stream(context)>>>(
      numbers<int32_t>(args.experts), numbers<float>(args.weights), numbers<const float>(args.logits),
      args.bias ? numbers<const float>(args.bias) : nullptr, s);
  check_launch(router_forward);
}

void backward(Context& context, const RouterBackward& args) {
  check_router_backward(args);
  RouterShape s = router_shape(args.logits, args.experts, args.dweights, {}, args.rule);
  s.dlogits_stride = args.dlogits.row_stride;
  if (s.tokens == 0) return;
  const RouterLaunch launch(router_backward, s, s.num_experts);
  backward_kernel<<<launch.blocks, 32 * launch.warps, launch.bytes, cuda_stream(context)>>>(
      numbers<float>(args.dlogits), numbers<const float>(args.dweights), numbers<const int32_t>(args.experts),
      numbers<const float>(args.logits), s);
  check_launch(router_backward);
}

[[maybe_unused]] const bool added = router_forward.add({"warps", DeviceKind::cuda, forward}) &&
                                    router_backward.add({"warps", DeviceKind::cuda, backward});

}  // namespace
}  // namespace hone
