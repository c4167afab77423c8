// Optimizer updates on a GPU (sum of squares and clipping: grad_norm.cu).
//
// Use       adamw_update, sgd_update, rmsprop_update, adagrad_update, lion_update; every alignment.
// Tile      one group of 4 (f32 states) or 8 (bf16 states) elements per thread, 256 threads per block.
// Roles     all threads alike.
// Pipeline  none.
// Smem      none.
// Numerics  the specification's f32 operations in its order, so the bits are equal. bf16 states are rounded
//           stochastically (internal.h); the draw is a function of (seed, stream, first + element index).
// PDL       none: weights must not be read ahead while they are written.
// Limits    16-byte vectors if all addresses are 16-byte aligned; else element by element.
#include <cmath>

#include "kernels/check_shape.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/optimizer/internal.h"

namespace hone {
namespace {

constexpr int threads = 256;
// Elements per thread: 16 bytes of the narrowest dtype.
template <class State>
constexpr int group = vec_size<State>;

// A rule updates x and its states from the clipped gradient; `decays`: weight decay applies.
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
  __device__ void operator()(float& x, float (&state)[2], float g, bool decays) const {
    state[0] = state[0] + rest1 * (g - state[0]);
    state[1] = state[1] * beta2 + rest2 * g * g;
    x = x * (decays ? keep : 1) - rate * state[0] / (sqrtf(state[1]) / root + eps);
  }
};

struct SgdRule {
  static constexpr int num_states = 0;
  SgdStep step;
  __device__ void operator()(float& x, float (&)[1], float gradient, bool decays) const {
    x -= step.learning_rate * (gradient + (decays ? step.weight_decay : 0) * x);
  }
};

struct MomentumRule {
  static constexpr int num_states = 1;
  SgdStep step;
  __device__ void operator()(float& x, float (&velocity)[1], float gradient, bool decays) const {
    float g = gradient + (decays ? step.weight_decay : 0) * x;
    velocity[0] = step.first ? g : step.momentum * velocity[0] + (1 - step.dampening) * g;
    g = step.nesterov ? g + step.momentum * velocity[0] : velocity[0];
    x -= step.learning_rate * g;
  }
};

struct RmspropRule {
  static constexpr int num_states = 1;
  RmspropStep step;
  __device__ void operator()(float& x, float (&mean)[1], float gradient, bool decays) const {
    const float g = gradient + (decays ? step.weight_decay : 0) * x;
    mean[0] = step.alpha * mean[0] + (1 - step.alpha) * g * g;
    x -= step.learning_rate * (g / (sqrtf(mean[0]) + step.eps));
  }
};

struct AdagradRule {
  static constexpr int num_states = 1;
  AdagradStep step;
  __device__ void operator()(float& x, float (&sum)[1], float gradient, bool decays) const {
    const float g = gradient + (decays ? step.weight_decay : 0) * x;
    sum[0] = (step.first ? step.initial : sum[0]) + g * g;
    x -= step.learning_rate * (g / (sqrtf(sum[0]) + step.eps));
  }
};

struct LionRule {
  static constexpr int num_states = 1;
  float keep, rate, beta1, rest1, beta2, rest2;
  explicit LionRule(const LionStep& step)
      : keep(static_cast<float>(1 - double{step.learning_rate} * step.weight_decay)),
        rate(step.learning_rate),
        beta1(step.beta1),
        rest1(static_cast<float>(1 - double{step.beta1})),
        beta2(step.beta2),
        rest2(static_cast<float>(1 - double{step.beta2})) {}
  __device__ void operator()(float& x, float (&mean)[1], float g, bool decays) const {
    const float mix = mean[0] * beta1 + g * rest1;
    const float sign = mix > 0 ? 1.0f : mix < 0 ? -1.0f : mix;
    x = x * (decays ? keep : 1) - rate * sign;
    mean[0] = mean[0] * beta2 + g * rest2;
  }
};

template <class Rule>
constexpr int state_slots = Rule::num_states > 0 ? Rule::num_states : 1;

template <class Rule, class State>
struct Update {
  Rule rule;
  float* value;
  __nv_bfloat16* rounded;  // or nullptr
  State* state[state_slots<Rule>];
  const float *grad, *clip;
  const uint8_t* decays;  // or nullptr
  int64_t count;
  bool packed;                    // all addresses are 16-byte aligned
  uint64_t seed = 0, stream = 0;  // for stochastic rounding of bf16 states
  int64_t first = 0;              // ParamRange::first
};

// Loads or stores a group in vectors, or element by element: elements at or past `left` load as zero and are not
// stored.
template <bool whole, int G, class T>
__device__ void load_group(float (&to)[G], const T* from, int64_t left) {
  constexpr int n = G < vec_size<T> ? G : vec_size<T>;
#pragma unroll
  for (int c = 0; c < G; c += n) {
    float part[n];
    if constexpr (whole) load_vec(part, from + c);
#pragma unroll
    for (int i = 0; i < n; ++i) to[c + i] = whole ? part[i] : c + i < left ? to_f32(from[c + i]) : 0;
  }
}
template <bool whole, int G, class T>
__device__ void store_group(T* to, const float (&from)[G], int64_t left) {
  constexpr int n = G < vec_size<T> ? G : vec_size<T>;
#pragma unroll
  for (int c = 0; c < G; c += n) {
    float part[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      part[i] = from[c + i];
      if (!whole && c + i < left) to[c + i] = from_f32<T>(part[i]);
    }
    if constexpr (whole) store_vec(to + c, part);
  }
}

// Updates one group. Several groups per thread, all loaded first, were slower: they need more registers per thread.
template <bool whole, class Rule, class State>
__device__ void update_group(const Update<Rule, State>& a) {
  constexpr int slots = state_slots<Rule>, G = group<State>;
  const int64_t begin = (int64_t{blockIdx.x} * threads + threadIdx.x) * G, left = a.count - begin;
  if (!whole && left <= 0) return;
  // Load the group.
  float x[G], g[G], s[slots][G] = {};
  load_group<whole>(g, a.grad + begin, left);
  load_group<whole>(x, a.value + begin, left);
#pragma unroll
  for (int k = 0; k < Rule::num_states; ++k) load_group<whole>(s[k], a.state[k] + begin, left);
  // Update each element; round bf16 states stochastically.
  const bool decays = !a.decays || a.decays[begin / param_granule] != 0;
  const float clip = *a.clip;
  Philox4 noise{};
#pragma unroll
  for (int i = 0; i < G; ++i) {
    float state[slots];
#pragma unroll
    for (int k = 0; k < slots; ++k) state[k] = s[k][i];
    a.rule(x[i], state, g[i] * clip, decays);
    uint32_t word = 0;
    if (sizeof(State) == 2 && a.first % 4 == 0) {
      if (i % 4 == 0) noise = philox(a.seed, a.stream, static_cast<uint64_t>((a.first + begin + i) / 4));
      word = noise.word[i % 4];
    } else if (sizeof(State) == 2) {  // a range that begins inside of a draw
      word = rounding_noise(a.seed, a.stream, a.first + begin + i);
    }
#pragma unroll
    for (int k = 0; k < slots; ++k)
      s[k][i] = sizeof(State) == 2 ? stochastic_bf16(state[k], word >> (16 * k)) : state[k];
  }
  // Store the group.
  store_group<whole>(a.value + begin, x, left);
  if (a.rounded) store_group<whole>(a.rounded + begin, x, left);
#pragma unroll
  for (int k = 0; k < Rule::num_states; ++k) store_group<whole>(a.state[k] + begin, s[k], left);
}

template <class Rule, class State>
__global__ void __launch_bounds__(threads) update_kernel(const Update<Rule, State> a) {
  if (a.packed && (int64_t{blockIdx.x} + 1) * threads * group<State> <= a.count)
    update_group<true>(a);
  else
    update_group<false>(a);
}

template <class State, class Rule>
void update(Context& context, const OpBase& op, const ParamRange& range, const Rule& rule,
            std::initializer_list<Tensor> states, uint64_t seed = 0, uint64_t stream = 0) {
  const int64_t count = range.value.dim(0);
  if (count == 0) return;
  Update<Rule, State> a{.rule = rule,
                        .value = numbers<float>(range.value),
                        .rounded = numbers<__nv_bfloat16>(range.rounded),
                        .state = {},
                        .grad = numbers<const float>(range.grad),
                        .clip = numbers<const float>(range.clip),
                        .decays = numbers<const uint8_t>(range.decays),
                        .count = count,
                        .packed = true,
                        .seed = seed,
                        .stream = stream,
                        .first = range.first};
  const auto look_at = [&](const Tensor& x) { a.packed = a.packed && reinterpret_cast<uintptr_t>(x.data) % 16 == 0; };
  look_at(range.value);
  look_at(range.rounded);
  look_at(range.grad);
  int k = 0;
  for (const Tensor& state : states) {
    a.state[k++] = numbers<State>(state);
    look_at(state);
  }
  constexpr int64_t per_block = int64_t{threads} * group<State>;
  update_kernel<<<static_cast<unsigned>((count + per_block - 1) / per_block), threads, 0, cuda_stream(context)>>>(a);
  check_launch(op);
}

void adamw(Context& context, const AdamwUpdate& args) {
  check_range(adamw_update, args.range);
  check_moments(args.range, args.m, args.v);
  with_storage(adamw_update, args.m.dtype, [&](auto type) {
    update<decltype(type)>(context, adamw_update, args.range, AdamwRule(args.step), {args.m, args.v}, args.step.seed,
                           args.step.stream);
  });
}

void sgd(Context& context, const SgdUpdate& args) {
  check_range(sgd_update, args.range);
  if (args.step.momentum == 0) return update<float>(context, sgd_update, args.range, SgdRule{args.step}, {});
  check_shape(sgd_update, "buffer", args.buffer, {args.range.value.dim(0)});
  update<float>(context, sgd_update, args.range, MomentumRule{args.step}, {args.buffer});
}

void rmsprop(Context& context, const RmspropUpdate& args) {
  check_range(rmsprop_update, args.range);
  check_shape(rmsprop_update, "square", args.square, {args.range.value.dim(0)});
  update<float>(context, rmsprop_update, args.range, RmspropRule{args.step}, {args.square});
}

void adagrad(Context& context, const AdagradUpdate& args) {
  check_range(adagrad_update, args.range);
  check_shape(adagrad_update, "sum", args.sum, {args.range.value.dim(0)});
  update<float>(context, adagrad_update, args.range, AdagradRule{args.step}, {args.sum});
}

void lion(Context& context, const LionUpdate& args) {
  check_range(lion_update, args.range);
  check_mean(lion_update, args.m, args.range.value.dim(0));
  with_storage(lion_update, args.m.dtype, [&](auto type) {
    update<decltype(type)>(context, lion_update, args.range, LionRule(args.step), {args.m}, args.step.seed,
                           args.step.stream);
  });
}

[[maybe_unused]] const bool added = adamw_update.add({"elementwise", DeviceKind::cuda, adamw}) &&
                                    sgd_update.add({"elementwise", DeviceKind::cuda, sgd}) &&
                                    rmsprop_update.add({"elementwise", DeviceKind::cuda, rmsprop}) &&
                                    adagrad_update.add({"elementwise", DeviceKind::cuda, adagrad}) &&
                                    lion_update.add({"elementwise", DeviceKind::cuda, lion});

}  // namespace
}  // namespace hone
