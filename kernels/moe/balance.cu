// CUDA bodies of the balance ops.
//
// Use       every shape.
// Tile      probs_kernel, gradient_kernel: one token per warp. sum_kernel: one sequence and 32 experts per block.
//           total_kernel, bias_kernel: one block.
// Roles     probs, gradient: 4 warps, all alike. sum: 32 warps; a warp adds every 32nd token of the sequence, one
//           expert per lane. total: 32 warps; a warp takes every 32nd sequence. bias: 1 warp.
// Pipeline  none.
// Smem      sum: static, 32 * 66 words. total: static, 96 words. Others: none.
// Numerics  f32. A sequence's sums depend on its own tokens: tokens w, w + 32, ... from zero, then
//           warps in ascending order; one addition to each element.
// PDL       none.
// Limits    none.
#include "kernels/check_shape.h"
#include "kernels/moe/balance.h"
#include "kernels/moe/router_token.cuh"

namespace hone {
namespace {

constexpr int sum_warps = 32;

// The probability of expert e of a token: softmax, or sigmoid over the sum of sigmoids.
struct TokenProbs {
  float most, sum, sigmoids = 1;
  bool sigmoid;
  __device__ TokenProbs(const TokenLogits& token, RouterScores scores)
      : most(token.most()), sum(token.exp_sum(most)), sigmoid(scores == RouterScores::sigmoid) {
    if (!sigmoid) return;
    float own = 0;
    token.each([&](int e) { own += sigmoid_of(token.logits[e]); });
    sigmoids = warp_sum(own) + router_sum_floor;
  }
  __device__ float softmax(float logit) const { return expf(logit - most) / sum; }
  __device__ float operator()(float logit) const { return sigmoid ? sigmoid_of(logit) / sigmoids : softmax(logit); }
  __device__ float logsumexp() const { return most + logf(sum); }
};

// probs [T, E] and z [T] of each token.
__global__ void __launch_bounds__(32 * router_warps)
    probs_kernel(float* probs, float* z, const float* logits, int64_t logits_stride, int64_t tokens, int E,
                 RouterScores scores) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t t = int64_t{blockIdx.x} * router_warps + warp;
  if (t >= tokens) return;
  const TokenLogits token{logits + t * logits_stride, E, lane};
  const TokenProbs prob(token, scores);
  token.each([&](int e) { probs[t * E + e] = prob(token.logits[e]); });
  const float squared = prob.logsumexp() * prob.logsumexp();
  if (lane == 0) z[t] = squared;
}

struct LoadShape {
  int64_t load_stride, probs_stride, rest_stride;
  int E, k;
};

__global__ void __launch_bounds__(32 * sum_warps)
    sum_kernel(float* load, float* probs, float* rest, const float* token_probs, const float* token_z,
               const int32_t* experts, const int32_t* places, const float* weights, const int32_t* offsets,
               LoadShape s) {
  // Of each warp: per lane the load and the probabilities of its expert; then z and dropped choices.
  __shared__ float loads[sum_warps][32], sums[sum_warps][32], others[sum_warps][2];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t sequence = blockIdx.x, begin = offsets[sequence], end = offsets[sequence + 1];
  const int e = static_cast<int>(blockIdx.y) * 32 + lane;
  float chosen = 0, sum = 0, z = 0, dropped = 0;
  for (int64_t t = begin + warp; t < end; t += sum_warps) {
    const float weight = weights[t];
    if (e < s.E) sum = fmaf(weight, token_probs[t * s.E + e], sum);
    z = fmaf(weight, token_z[t], z);
    for (int c = 0; c < s.k; ++c) {
      if (experts[t * s.k + c] == e) chosen += weight;
      if (places && places[t * s.k + c] < 0) dropped += weight;
    }
  }
  loads[warp][lane] = chosen;
  sums[warp][lane] = sum;
  if (lane == 0) {
    others[warp][0] = z;
    others[warp][1] = dropped;
  }
  __syncthreads();  // the sums of all warps are stored
  if (warp > 0) return;
  float load_total = 0, prob_total = 0, other_total = 0;
  for (int w = 0; w < sum_warps; ++w) {
    load_total += loads[w][lane];
    prob_total += sums[w][lane];
    other_total += others[w][lane % 2];
  }
  if (e < s.E) {
    load[sequence * s.load_stride + e] += load_total;
    probs[sequence * s.probs_stride + e] += prob_total;
  }
  if (blockIdx.y == 0 && lane < 2) rest[sequence * s.rest_stride + lane] += other_total;
}

void load(Context& context, const RouterLoad& args) {
  check_router_load(args);
  const int64_t T = args.logits.dim(0), E = args.logits.dim(1), S = args.load.dim(0);
  if (T == 0 || S == 0) return;
  const ScratchScope scope(context);
  float* const probs = numbers<float>(context.scratch().take(DType::f32, {T, E}));
  float* const z = numbers<float>(context.scratch().take(DType::f32, {T}));
  probs_kernel<<<static_cast<unsigned>((T + router_warps - 1) / router_warps), 32 * router_warps, 0,
                 cuda_stream(context)>>>(probs, z, numbers<const float>(args.logits), args.logits.row_stride, T,
                                         static_cast<int>(E), args.scores);
  LoadShape s{};
  s.load_stride = args.load.row_stride;
  s.probs_stride = args.probs.row_stride;
  s.rest_stride = args.rest.row_stride;
  s.E = static_cast<int>(E);
  s.k = static_cast<int>(args.experts.dim(1));
  const dim3 grid(static_cast<unsigned>(S), static_cast<unsigned>((E + 31) / 32));
  sum_kernel<<<grid, 32 * sum_warps, 0, cuda_stream(context)>>>(
      numbers<float>(args.load), numbers<float>(args.probs), numbers<float>(args.rest), probs, z,
      numbers<const int32_t>(args.experts), args.places ? numbers<const int32_t>(args.places) : nullptr,
      numbers<const float>(args.weights), numbers<const int32_t>(args.offsets), s);
  check_launch(router_load);
}
size_t load_scratch(const RouterLoad& args) {
  return static_cast<size_t>(args.logits.dim(0) * (args.logits.dim(1) + 1)) * sizeof(float) + 256;
}

struct TotalShape {
  int64_t sequences, load_stride, probs_stride, rest_stride;
  int E, k;
};

__global__ void __launch_bounds__(1024)
    total_kernel(float* sums, const float* load, const float* probs, const float* rest, TotalShape s) {
  __shared__ float parts[3][32];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float balance = 0, z = 0, dropped = 0;
  for (int64_t sequence = warp; sequence < s.sequences; sequence += 32) {
    float choices = 0, dot = 0;
    for (int e = lane; e < s.E; e += 32) {
      const float chosen = load[sequence * s.load_stride + e];
      choices += chosen;
      dot = fmaf(chosen, probs[sequence * s.probs_stride + e], dot);
    }
    choices = warp_sum(choices);
    dot = warp_sum(dot);
    if (choices > 0) balance += static_cast<float>(s.E) * dot / (choices / static_cast<float>(s.k));
    z += rest[sequence * s.rest_stride];
    dropped += rest[sequence * s.rest_stride + 1];
  }
  if (lane == 0) {
    parts[0][warp] = balance;
    parts[1][warp] = z;
    parts[2][warp] = dropped;
  }
  __syncthreads();  // the sums of all warps are stored
  if (threadIdx.x < 3) {
    float total = 0;
    for (int w = 0; w < 32; ++w) total += parts[threadIdx.x][w];
    sums[threadIdx.x] += total;
  }
  for (int e = static_cast<int>(threadIdx.x); e < s.E; e += 1024) {
    float total = 0;
    for (int64_t sequence = 0; sequence < s.sequences; ++sequence) total += load[sequence * s.load_stride + e];
    sums[3 + e] += total;
  }
}

void add_sums(Context& context, const RouterSums& args) {
  check_router_sums(args);
  TotalShape s{};
  s.sequences = args.load.dim(0);
  s.load_stride = args.load.row_stride;
  s.probs_stride = args.probs.row_stride;
  s.rest_stride = args.rest.row_stride;
  s.E = static_cast<int>(args.load.dim(1));
  s.k = static_cast<int>(args.num_choices);
  total_kernel<<<1, 1024, 0, cuda_stream(context)>>>(numbers<float>(args.sums), numbers<const float>(args.load),
                                                     numbers<const float>(args.probs), numbers<const float>(args.rest),
                                                     s);
  check_launch(router_sums);
}

struct GradientShape {
  int64_t tokens, sequences, dlogits_stride, logits_stride, load_stride;
  int E, k;
  RouterScores scores;
  float balance, z;
};

// The formulas are those of balance.cpp.
__global__ void __launch_bounds__(32 * router_warps)
    gradient_kernel(float* dlogits, const float* logits, const float* load, const float* weights,
                    const int32_t* offsets, GradientShape s) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t t = int64_t{blockIdx.x} * router_warps + warp;
  if (t >= s.tokens) return;
  // The last sequence that begins at or before t and is not empty.
  int64_t low = 0, high = s.sequences - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (offsets[middle] <= t)
      low = middle;
    else
      high = middle - 1;
  }
  const float* const chosen = load + low * s.load_stride;
  const TokenLogits token{logits + t * s.logits_stride, s.E, lane};
  const TokenProbs prob(token, s.scores);
  float choices = 0;
  token.each([&](int e) { choices += chosen[e]; });
  choices = warp_sum(choices);
  const float factor = choices > 0 ? s.balance * static_cast<float>(s.E) / (choices / static_cast<float>(s.k)) : 0.0f;
  float mean = 0;
  token.each([&](int e) { mean = fmaf(factor * chosen[e], prob(token.logits[e]), mean); });
  mean = warp_sum(mean);
  const float z = 2 * s.z * prob.logsumexp(), weight = weights[t];
  token.each([&](int e) {
    const float logit = token.logits[e], p = prob(logit);
    const float slope = prob.sigmoid ? p * (1.0f - sigmoid_of(logit)) : p;
    dlogits[t * s.dlogits_stride + e] += weight * fmaf(slope, factor * chosen[e] - mean, z * prob.softmax(logit));
  });
}

void losses_backward(Context& context, const RouterLossesBackward& args) {
  check_router_losses_backward(args);
  GradientShape s{};
  s.tokens = args.logits.dim(0);
  s.sequences = args.load.dim(0);
  s.dlogits_stride = args.dlogits.row_stride;
  s.logits_stride = args.logits.row_stride;
  s.load_stride = args.load.row_stride;
  s.E = static_cast<int>(args.logits.dim(1));
  s.k = static_cast<int>(args.num_choices);
  s.scores = args.scores;
  s.balance = args.balance;
  s.z = args.z;
  if (s.tokens == 0 || s.sequences == 0) return;
  gradient_kernel<<<static_cast<unsigned>((s.tokens + router_warps - 1) / router_warps), 32 * router_warps, 0,
                    cuda_stream(context)>>>(numbers<float>(args.dlogits), numbers<const float>(args.logits),
                                            numbers<const float>(args.load), numbers<const float>(args.weights),
                                            numbers<const int32_t>(args.offsets), s);
  check_launch(router_losses_backward);
}

__global__ void __launch_bounds__(32) bias_kernel(float* bias, const float* load, int E, float rate) {
  float sum = 0;
  for (int e = static_cast<int>(threadIdx.x); e < E; e += 32) sum += load[e];
  const float mean = warp_sum(sum) / static_cast<float>(E);
  for (int e = static_cast<int>(threadIdx.x); e < E; e += 32) {
    const float missing = mean - load[e];
    if (missing != 0) bias[e] += missing > 0 ? rate : -rate;
  }
}

void bias_update(Context& context, const RouterBiasUpdate& args) {
  check_router_bias_update(args);
  bias_kernel<<<1, 32, 0, cuda_stream(context)>>>(numbers<float>(args.bias), numbers<const float>(args.load),
                                                  static_cast<int>(args.bias.dim(0)), args.rate);
  check_launch(router_bias_update);
}

[[maybe_unused]] const bool added = router_load.add({"warps", DeviceKind::cuda, load, 0, nullptr, load_scratch}) &&
                                    router_sums.add({"warps", DeviceKind::cuda, add_sums}) &&
                                    router_losses_backward.add({"warps", DeviceKind::cuda, losses_backward}) &&
                                    router_bias_update.add({"warps", DeviceKind::cuda, bias_update});

}  // namespace
}  // namespace hone
