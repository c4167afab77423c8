// CUDA bodies of router_forward and router_backward.
//
// Use       every shape.
// Tile      one token per warp.
// Roles     4 warps per block, all alike.
// Pipeline  none.
// Smem      dynamic, per warp: forward 2 * E + num_groups + k words (scores, keys, ranks of groups, choices); backward
// E
//           words of score gradients.
// Numerics  f32. Keys are compared as integers of the same order, so a choice is exact: among equal keys the lower
//           expert wins. Sums over experts: router_token.cuh; sums over choices: ascending.
// PDL       none.
// Limits    2 * E + num_groups + k words per warp fit the shared memory of a block.
#include "kernels/check_shape.h"
#include "kernels/moe/router_token.cuh"

namespace hone {
namespace {

struct RouterShape {
  int64_t tokens, logits_stride, experts_stride, weights_stride, dlogits_stride;
  int num_experts, num_choices, num_groups, top_groups;
  RouterScores scores;
  bool normalize, logit_keys;
  float scale;
};

// An integer that orders like the number: 0 is below all (taken), 1 is NaN.
__device__ inline uint32_t sortable(float x) {
  if (isnan(x)) return 1;
  const uint32_t bits = __float_as_uint(x + 0.0f);  // -0 becomes 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Returns the index of the largest key in all lanes, the first of equals, and marks it as taken.
__device__ inline int take_best(uint32_t* keys, int count, int lane) {
  unsigned long long best = 0;
  for (int i = lane; i < count; i += 32) {
    const unsigned long long key = static_cast<unsigned long long>(keys[i]) << 32 | (0xffffffffu - i);
    best = key > best ? key : best;
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const unsigned long long other = __shfl_xor_sync(0xffffffffu, best, lanes);
    best = other > best ? other : best;
  }
  const int index = static_cast<int>(0xffffffffu - static_cast<uint32_t>(best));
  __syncwarp();  // all lanes have read the keys
  if (lane == 0) keys[index] = 0;
  __syncwarp();
  return index;
}

// Sets the keys of experts outside of the best groups to -infinity. `keys` holds the numbers as bits.
__device__ inline void keep_best_groups(uint32_t* keys, uint32_t* ranks, const RouterShape& s, int lane) {
  const int width = s.num_experts / s.num_groups;
  for (int g = lane; g < s.num_groups; g += 32) {
    float best = -INFINITY, second = -INFINITY;
    for (int e = g * width; e < (g + 1) * width; ++e) {
      const float key = __uint_as_float(keys[e]);
      if (key > best) {
        second = best;
        best = key;
      } else if (key > second) {
        second = key;
      }
    }
    ranks[g] = sortable(s.scores == RouterScores::sigmoid && width > 1 ? best + second : best);
  }
  __syncwarp();  // all ranks are stored
  for (int i = 0; i < s.top_groups; ++i) take_best(ranks, s.num_groups, lane);
  for (int e = lane; e < s.num_experts; e += 32)
    if (ranks[e / width] != 0) keys[e] = __float_as_uint(-INFINITY);
  __syncwarp();  // all keys are stored
}

// The chosen scores of a token before `normalize` and `scale`: score(c) for choice c.
struct ChosenScores {
  const float *logits, *scores;
  const int* chosen;
  RouterScores kind;
  float most = -INFINITY, sum = 0;
  __device__ ChosenScores(const float* logits_, const float* scores_, const int* chosen_, const RouterShape& s)
      : logits(logits_), scores(scores_), chosen(chosen_), kind(s.scores) {
    if (kind != RouterScores::softmax_of_top) return;
    for (int c = 0; c < s.num_choices; ++c) most = fmaxf(most, logits[chosen[c]]);
    for (int c = 0; c < s.num_choices; ++c) sum += expf(logits[chosen[c]] - most);
  }
  __device__ float operator()(int c) const {
    return kind == RouterScores::softmax_of_top ? expf(logits[chosen[c]] - most) / sum : scores[chosen[c]];
  }
  __device__ float normalizer(const RouterShape& s) const {
    if (!s.normalize) return 1;
    float total = router_sum_floor;
    for (int c = 0; c < s.num_choices; ++c) total += (*this)(c);
    return total;
  }
};

__device__ inline void store_scores(float* scores, const TokenLogits& token, RouterScores kind) {
  if (kind == RouterScores::sigmoid) {
    token.each([&](int e) { scores[e] = sigmoid_of(token.logits[e]); });
  } else {
    const float most = token.most(), sum = token.exp_sum(most);
    token.each([&](int e) { scores[e] = expf(token.logits[e] - most) / sum; });
  }
  __syncwarp();  // the scores of all lanes are stored
}

__global__ void __launch_bounds__(32 * router_warps)
    forward_kernel(int32_t* experts, float* weights, const float* logits, const float* bias, RouterShape s) {
  extern __shared__ uint32_t shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, E = s.num_experts;
  uint32_t* const keys = shared + warp * (2 * E + s.num_groups + s.num_choices);
  float* const scores = reinterpret_cast<float*>(keys + E);
  uint32_t* const ranks = keys + 2 * E;
  int* const chosen = reinterpret_cast<int*>(ranks + s.num_groups);
  const int64_t t = int64_t{blockIdx.x} * router_warps + warp;
  if (t >= s.tokens) return;
  const TokenLogits token{logits + t * s.logits_stride, E, lane};
  store_scores(scores, token, s.scores);
  token.each(
      [&](int e) { keys[e] = __float_as_uint(s.logit_keys ? token.logits[e] : scores[e] + (bias ? bias[e] : 0.0f)); });
  __syncwarp();  // the keys of all lanes are stored
  if (s.num_groups > 1) keep_best_groups(keys, ranks, s, lane);
  token.each([&](int e) { keys[e] = sortable(__uint_as_float(keys[e])); });
  __syncwarp();  // the sortable keys of all lanes are stored
  for (int c = 0; c < s.num_choices; ++c) {
    const int best = take_best(keys, E, lane);
    if (lane == 0) chosen[c] = best;
  }
  __syncwarp();  // the choices are stored
  const ChosenScores score(token.logits, scores, chosen, s);
  const float sum = score.normalizer(s);
  for (int c = lane; c < s.num_choices; c += 32) {
    experts[t * s.experts_stride + c] = chosen[c];
    weights[t * s.weights_stride + c] = score(c) / sum * s.scale;
  }
}

// The formulas are those of router.cpp.
__global__ void __launch_bounds__(32 * router_warps)
    backward_kernel(float* dlogits, const float* dweights, const int32_t* experts, const float* logits, RouterShape s) {
  extern __shared__ float gradients[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, E = s.num_experts;
  float* const scores = gradients + warp * E;
  const int64_t t = int64_t{blockIdx.x} * router_warps + warp;
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

RouterShape shape_of(const Tensor& logits, const Tensor& experts, const Tensor& weights, const RouterRule& rule) {
  RouterShape s{};
  s.tokens = logits.dim(0);
  s.logits_stride = logits.row_stride;
  s.experts_stride = experts.row_stride;
  s.weights_stride = weights.row_stride;
  s.num_experts = static_cast<int>(logits.dim(1));
  s.num_choices = static_cast<int>(experts.dim(1));
  s.num_groups = static_cast<int>(rule.num_groups);
  s.top_groups = static_cast<int>(rule.top_groups);
  s.scores = rule.scores;
  s.normalize = rule.normalize;
  s.scale = rule.scale;
  return s;
}

unsigned blocks_of(const RouterShape& s) { return static_cast<unsigned>((s.tokens + router_warps - 1) / router_warps); }

void forward(Context& context, const RouterForward& args) {
  check_router_forward(args);
  RouterShape s = shape_of(args.logits, args.experts, args.weights, args.rule);
  s.logit_keys = !args.bias && s.num_groups == 1;
  if (s.tokens == 0) return;
  const size_t bytes =
      static_cast<size_t>(router_warps * (2 * s.num_experts + s.num_groups + s.num_choices)) * sizeof(uint32_t);
  allow_shared_memory(forward_kernel, bytes);
  forward_kernel<<<blocks_of(s), 32 * router_warps, bytes, cuda_stream(context)>>>(
      numbers<int32_t>(args.experts), numbers<float>(args.weights), numbers<const float>(args.logits),
      args.bias ? numbers<const float>(args.bias) : nullptr, s);
  check_launch(router_forward);
}

void backward(Context& context, const RouterBackward& args) {
  check_router_backward(args);
  RouterShape s = shape_of(args.logits, args.experts, args.dweights, args.rule);
  s.dlogits_stride = args.dlogits.row_stride;
  if (s.tokens == 0) return;
  const size_t bytes = static_cast<size_t>(router_warps * s.num_experts) * sizeof(float);
  allow_shared_memory(backward_kernel, bytes);
  backward_kernel<<<blocks_of(s), 32 * router_warps, bytes, cuda_stream(context)>>>(
      numbers<float>(args.dlogits), numbers<const float>(args.dweights), numbers<const int32_t>(args.experts),
      numbers<const float>(args.logits), s);
  check_launch(router_backward);
}

[[maybe_unused]] const bool added = router_forward.add({"warps", DeviceKind::cuda, forward}) &&
                                    router_backward.add({"warps", DeviceKind::cuda, backward});

}  // namespace
}  // namespace hone
