// The updates have the specification's operations in its order, hence its bits; the sum of squares has an order of its own.
#include <cmath>

#include "kernels/check_shape.h"
#include "kernels/cuda.cuh"
#include "kernels/optimizer.h"

namespace hone {
namespace {

constexpr int threads = 256;
constexpr int per_thread = 4;

struct AdamwRule {
  static constexpr int num_states = 2;
  float keep, rest1, beta2, rest2, rate, root, eps;
  explicit AdamwRule(const AdamwStep& step)
      : keep(static_cast<float>(1 - double{step.learning_rate} * step.weight_decay)),
        rest1(static_cast<float>(1 - double{step.beta1})),
        beta2(step.beta2),
        rest2(static_cast<float>(1 - double{step.beta2})),
        rate(static_cast<float>(double{step.learning_rate} / step.correction1)),
        root(static_cast<float>(std::sqrt(double{step.correction2}))),
        eps(step.eps) {}
  __device__ void operator()(float& x, float* const (&state)[2], float g) const {
    float &first = *state[0], &second = *state[1];
    first = first + rest1 * (g - first);
    second = second * beta2 + rest2 * g * g;
    x = x * keep - rate * first / (sqrtf(second) / root + eps);
  }
};

struct SgdRule {
  static constexpr int num_states = 0;
  SgdStep step;
  __device__ void operator()(float& x, float* const (&)[1], float gradient) const { x -= step.learning_rate * (gradient + step.weight_decay * x); }
};

struct MomentumRule {
  static constexpr int num_states = 1;
  SgdStep step;
  __device__ void operator()(float& x, float* const (&state)[1], float gradient) const {
    float &velocity = *state[0], g = gradient + step.weight_decay * x;
    velocity = step.first ? g : step.momentum * velocity + (1 - step.dampening) * g;
    g = step.nesterov ? g + step.momentum * velocity : velocity;
    x -= step.learning_rate * g;
  }
};

struct RmspropRule {
  static constexpr int num_states = 1;
  RmspropStep step;
  __device__ void operator()(float& x, float* const (&state)[1], float gradient) const {
    const float g = gradient + step.weight_decay * x;
    float& mean = *state[0];
    mean = step.alpha * mean + (1 - step.alpha) * g * g;
    x -= step.learning_rate * (g / (sqrtf(mean) + step.eps));
  }
};

template <int num_states>
struct Range {
  static constexpr int most = num_states > 0 ? num_states : 1;
  float *value, *state[most];
  const float *grad, *clip;
  int64_t count;
  bool packed;
};

template <class Rule>
__global__ void __launch_bounds__(threads) update_kernel(const Range<Rule::num_states> a, const Rule rule) {
  constexpr int num_states = Rule::num_states, most = Range<num_states>::most;
  const int64_t begin = (int64_t{blockIdx.x} * threads + threadIdx.x) * per_thread;
  if (begin >= a.count) return;
  const float clip = *a.clip;
  const bool whole = a.packed && begin + per_thread <= a.count;
  float x[per_thread] = {}, g[per_thread] = {}, s[most][per_thread] = {};
  if (whole) {
    load_pack(g, a.grad + begin);
    load_pack(x, a.value + begin);
#pragma unroll
    for (int k = 0; k < num_states; ++k) load_pack(s[k], a.state[k] + begin);
  } else {
    for (int i = 0; i < per_thread && begin + i < a.count; ++i) {
      g[i] = a.grad[begin + i], x[i] = a.value[begin + i];
      for (int k = 0; k < num_states; ++k) s[k][i] = a.state[k][begin + i];
    }
  }
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    float* state[most];
#pragma unroll
    for (int k = 0; k < most; ++k) state[k] = &s[k][i];
    rule(x[i], state, g[i] * clip);
  }
  if (whole) {
    store_pack(a.value + begin, x);
#pragma unroll
    for (int k = 0; k < num_states; ++k) store_pack(a.state[k] + begin, s[k]);
  } else {
    for (int i = 0; i < per_thread && begin + i < a.count; ++i) {
      a.value[begin + i] = x[i];
      for (int k = 0; k < num_states; ++k) a.state[k][begin + i] = s[k][i];
    }
  }
}

bool on_16_bytes(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.data) % 16 == 0; }

template <class Rule>
void update(Context& context, const OpBase& op, Tensor value, std::initializer_list<Tensor> states, Tensor grad, Tensor clip, const Rule& rule) {
  const int64_t count = value.dim(0);
  check_shape(op, "value", value, {count});
  check_shape(op, "grad", grad, {count});
  check_shape(op, "clip", clip, {1});
  Range<Rule::num_states> a{numbers<float>(value),      {},    numbers<const float>(grad),
                            numbers<const float>(clip), count, on_16_bytes(value) && on_16_bytes(grad)};
  int k = 0;
  for (const Tensor& state : states) {
    check_shape(op, "state", state, {count});
    a.state[k++] = numbers<float>(state);
    a.packed = a.packed && on_16_bytes(state);
  }
  if (count == 0) return;
  constexpr int64_t per_block = int64_t{threads} * per_thread;
  update_kernel<<<static_cast<unsigned>((count + per_block - 1) / per_block), threads, 0, cuda_stream(context)>>>(a, rule);
  check_launch(op);
}

void adamw(Context& context, Tensor value, Tensor m, Tensor v, Tensor grad, Tensor clip, AdamwStep step) {
  update(context, adamw_update, value, {m, v}, grad, clip, AdamwRule(step));
}
void sgd(Context& context, Tensor value, Tensor buffer, Tensor grad, Tensor clip, SgdStep step) {
  if (step.momentum != 0)
    update(context, sgd_update, value, {buffer}, grad, clip, MomentumRule{step});
  else
    update(context, sgd_update, value, {}, grad, clip, SgdRule{step});
}
void rmsprop(Context& context, Tensor value, Tensor square, Tensor grad, Tensor clip, RmspropStep step) {
  update(context, rmsprop_update, value, {square}, grad, clip, RmspropRule{step});
}

[[maybe_unused]] const bool added = adamw_update.add({"elementwise", DeviceKind::cuda, adamw}) &&
                                    sgd_update.add({"elementwise", DeviceKind::cuda, sgd}) &&
                                    rmsprop_update.add({"elementwise", DeviceKind::cuda, rmsprop});

}  // namespace
}  // namespace hone
