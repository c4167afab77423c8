// CUDA bodies of the ops of multi-token prediction.
//
// Use       every shape.
// Tile      shift_kernel: one token and one row per thread. sum_kernel: one block.
// Roles     all threads alike.
// Pipeline  none.
// Smem      sum: static, 6 KB. shift: none.
// Numerics  sum: f64; thread i adds rows i, i + 256, ... from zero, then the threads' sums in ascending order; one
//           addition to each element.
// PDL       none.
// Limits    none.
#include <algorithm>

#include "kernels/cuda/cuda.cuh"
#include "kernels/lm_head/multi_token.h"

namespace hone {
namespace {

constexpr int threads = 256;

struct Shift {
  int32_t *next, *from, *targets;
  float *next_weights, *target_weights, *dlogp;
  const int32_t *tokens, *positions, *rows;
  const float* weights;
  int64_t T, R, distance;
  float factor;

  // The token `ahead` after token t, or -1 if the sequence of t has none.
  __device__ int64_t token_ahead(int64_t t, int64_t ahead) const {
    const int64_t to = t + ahead;
    return to < T && positions[to] == positions[t] + ahead ? to : -1;
  }
  __device__ void shift_token(int64_t t) const {
    const int64_t input = token_ahead(t, distance), target = token_ahead(t, distance + 1);
    next[t] = tokens[input >= 0 ? input : t];
    next_weights[t] = target >= 0 ? weights[target] : 0.0f;
  }
  __device__ void find_row(int64_t r) const {
    const int64_t row = rows[r];
    const bool inside = row >= 0 && row < T;
    const int64_t target = inside ? token_ahead(row, 1) : -1, before = row - distance % T;
    const bool known = target >= 0 && positions[row] >= distance;
    from[r] = static_cast<int32_t>(before < 0 ? before + T : before);
    targets[r] = known ? tokens[target] : 0;
    target_weights[r] = known ? weights[target] : 0.0f;
    dlogp[r] = known ? -factor * weights[target] : 0.0f;
  }
};

__global__ void __launch_bounds__(threads) shift_kernel(Shift s) {
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i < s.T) s.shift_token(i);
  if (i < s.R) s.find_row(i);
}

__global__ void __launch_bounds__(threads)
    sum_kernel(float* sums, const float* logp, const float* hit, const float* weights, int64_t R) {
  __shared__ double parts[3][threads];
  const int thread = static_cast<int>(threadIdx.x);
  double loss = 0, hits = 0, total = 0;
  for (int64_t r = thread; r < R; r += threads) {
    const double weight = weights[r];
    if (weight == 0) continue;
    loss -= weight * logp[r];
    hits += weight * hit[r];
    total += weight;
  }
  parts[0][thread] = loss;
  parts[1][thread] = hits;
  parts[2][thread] = total;
  __syncthreads();  // the sums of all threads are written
  if (thread >= 3) return;
  double sum = 0;
  for (int i = 0; i < threads; ++i) sum += parts[thread][i];
  sums[thread] += static_cast<float>(sum);
}

void shift(Context& context, const MultiTokenShift& args) {
  check_multi_token(args);
  Shift s{};
  s.next = numbers<int32_t>(args.next);
  s.from = numbers<int32_t>(args.from);
  s.targets = numbers<int32_t>(args.targets);
  s.next_weights = numbers<float>(args.next_weights);
  s.target_weights = numbers<float>(args.target_weights);
  s.dlogp = numbers<float>(args.dlogp);
  s.tokens = numbers<const int32_t>(args.tokens);
  s.positions = numbers<const int32_t>(args.positions);
  s.rows = numbers<const int32_t>(args.rows);
  s.weights = numbers<const float>(args.weights);
  s.T = args.tokens.size();
  s.R = args.rows.size();
  s.distance = args.distance;
  s.factor = args.factor;
  const int64_t most = std::max(s.T, s.R);
  if (most == 0) return;
  shift_kernel<<<static_cast<unsigned>((most + threads - 1) / threads), threads, 0, cuda_stream(context)>>>(s);
  check_launch(multi_token_shift);
}

void add_sums(Context& context, const MultiTokenSums& args) {
  check_multi_token(args);
  if (args.weights.size() == 0) return;
  sum_kernel<<<1, threads, 0, cuda_stream(context)>>>(numbers<float>(args.sums), numbers<const float>(args.logp),
                                                      numbers<const float>(args.hit),
                                                      numbers<const float>(args.weights), args.weights.size());
  check_launch(multi_token_sums);
}

[[maybe_unused]] const bool added = multi_token_shift.add({"threads", DeviceKind::cuda, shift}) &&
                                    multi_token_sums.add({"block", DeviceKind::cuda, add_sums});

}  // namespace
}  // namespace hone
