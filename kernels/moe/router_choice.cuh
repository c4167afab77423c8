#pragma once
// The choice of a token's experts by one warp: what router_forward and the fused bodies of routed_experts and
// moe_layer_tail share, so that all have the same bits. Only .cu files include it.
#include "kernels/moe/router_token.cuh"

namespace hone {

struct RouterShape {
  int64_t tokens, logits_stride, experts_stride, weights_stride, dlogits_stride;
  int num_experts, num_choices, num_groups, top_groups;
  RouterScores scores;
  bool normalize, logit_keys;
  float scale;
  // Shared memory of route_token(), in words.
  __host__ __device__ int words_per_warp() const { return 2 * num_experts + num_groups + num_choices; }
};

// An integer that orders like the number: 0 is below all (taken), 1 is NaN.
__device__ inline uint32_t sortable(float x) {
  if (isnan(x)) return 1;
  const uint32_t bits = __float_as_uint(x + 0.0f);  // -0 becomes 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Returns the index of the largest key in all lanes, the first of equals, and marks it as taken.
__device__ inline int take_best(uint32_t* keys, int count, int lane) {
  uint32_t most = 0, at = 0;
  for (int i = lane; i < count; i += 32)
    if (keys[i] > most) {
      most = keys[i];
      at = static_cast<uint32_t>(i);
    }
  const uint32_t best = __reduce_max_sync(0xffffffffu, most);
  const int index = static_cast<int>(__reduce_min_sync(0xffffffffu, most == best ? at : 0xffffffffu));
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

// Chooses the experts of one token and their weights. All lanes of a warp call it. `memory`: words_per_warp() words of
// shared memory of this warp.
__device__ inline void route_token(int32_t* experts, float* weights, const TokenLogits& token, const float* bias,
                                   uint32_t* memory, const RouterShape& s) {
  const int E = s.num_experts, lane = token.lane;
  uint32_t* const keys = memory;
  float* const scores = reinterpret_cast<float*>(keys + E);
  uint32_t* const ranks = keys + 2 * E;
  int* const chosen = reinterpret_cast<int*>(ranks + s.num_groups);
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
    experts[c] = chosen[c];
    weights[c] = score(c) / sum * s.scale;
  }
  __syncwarp();  // all lanes have read the memory
}

// The strides of experts and weights are those of these tensors. bias: that of router_forward.
inline RouterShape router_shape(const Tensor& logits, const Tensor& experts, const Tensor& weights, const Tensor& bias,
                                const RouterRule& rule) {
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
  s.logit_keys = !bias && rule.num_groups == 1;
  s.scale = rule.scale;
  return s;
}

}  // namespace hone
