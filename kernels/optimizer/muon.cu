// Muon's steps on a GPU.
//
// Use       muon_momentum, muon_normalize, scaled_sum, muon_apply; every shape and alignment.
// Tile      elementwise (kernels/cuda/elementwise.cuh): 4 elements per thread, or 1 if a vector would be misaligned or
//           the element decides an address. transpose_kernel: 32 x 32 elements per block of 32 x 8 threads.
// Roles     all threads alike.
// Pipeline  none.
// Smem      transpose_kernel: static, 32 * 33 * 4 = 4.1 KB (padded against bank conflicts).
// Numerics  the specification's f32 operations in its order, so the bits are equal.
// PDL       none: weights must not be read ahead while they are written.
// Limits    none.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/optimizer/internal.h"
#include "kernels/optimizer/matrix_checks.h"

namespace hone {
namespace {

constexpr int tile = 32, tile_rows = 8;

template <class State>
struct Momentum {
  float* update;
  State* buffer;
  const float *grad, *clip;
  float rest;
  bool nesterov;
  uint64_t seed, stream;
  int64_t first;
  template <int N>
  __device__ void run(int64_t, int64_t column) const {
    float g[N], old[N], out[N];
    load_numbers(g, grad + column);
    load_numbers(old, buffer + column);
    const float factor = *clip;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      g[i] *= factor;
      const float moved = old[i] + rest * (g[i] - old[i]);
      out[i] = nesterov ? moved - (moved - g[i]) * rest : moved;
      old[i] = sizeof(State) == 2 ? stochastic_bf16(moved, rounding_noise(seed, stream, first + column + i)) : moved;
    }
    store_numbers(update + column, out);
    store_numbers(buffer + column, old);
  }
};

// max(sqrt(squares), eps) as the specification computes it.
__device__ inline float norm_of(const double* squares, float eps) {
  const float norm = static_cast<float>(sqrt(*squares));
  return norm < eps ? eps : norm;
}

template <class To>
struct Divide {
  To* x;
  const float* update;
  const double* squares;
  float eps;
  template <int N>
  __device__ void run(int64_t, int64_t column) const {
    float value[N];
    load_numbers(value, update + column);
    const float norm = norm_of(squares, eps);
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = value[i] / norm;
    store_numbers(x + column, value);
  }
};

// x [cols, rows] = update [rows, cols] transposed, divided by the norm.
template <class To>
__global__ void __launch_bounds__(tile* tile_rows)
    transpose_kernel(To* x, const float* update, const double* squares, float eps, int64_t rows, int64_t cols) {
  __shared__ float part[tile][tile + 1];
  const int64_t r0 = int64_t{blockIdx.x} * tile, c0 = int64_t{blockIdx.y} * tile;
  const float norm = norm_of(squares, eps);
  const auto lane = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
  for (int i = group; i < tile; i += tile_rows)
    if (r0 + i < rows && c0 + lane < cols) part[i][lane] = update[(r0 + i) * cols + c0 + lane] / norm;
  __syncthreads();  // the tile is in shared memory
  for (int i = group; i < tile; i += tile_rows)
    if (c0 + i < cols && r0 + lane < rows) x[(c0 + i) * rows + r0 + lane] = from_f32<To>(part[lane][i]);
}

template <class Y, class X>
struct Sum {
  Y* y;
  const X* x;
  float a, b;
  template <int N>
  __device__ void run(int64_t, int64_t column) const {
    float sum[N], more[N];
    load_numbers(sum, y + column);
    load_numbers(more, x + column);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = a * sum[i] + b * more[i];
    store_numbers(y + column, sum);
  }
};

template <class From>
struct Apply {
  float* value;
  __nv_bfloat16* rounded;  // or nullptr
  const From* direction;
  int64_t first, rows, cols;
  bool transposed;
  float keep, rate;
  template <int N>
  __device__ void run(int64_t, int64_t column) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int64_t at = first + column + i;
      const int64_t from = transposed ? at % cols * rows + at / cols : at;
      const float x = value[column + i] * keep - rate * to_f32(direction[from]);
      value[column + i] = x;
      if (rounded) rounded[column + i] = __float2bfloat16_rn(x);
    }
  }
};

template <int N, class F>
void launch(Context& context, const OpBase& op, int64_t count, bool whole, F f) {
  launch_elementwise<N>(cuda_stream(context), {1, count}, whole, f);
  check_launch(op);
}

void momentum(Context& context, const MuonMomentum& args) {
  check(args);
  with_storage(muon_momentum, args.buffer.dtype, [&](auto type) {
    using State = decltype(type);
    Momentum<State> f;
    f.update = numbers<float>(args.update);
    f.buffer = numbers<State>(args.buffer);
    f.grad = numbers<const float>(args.grad);
    f.clip = numbers<const float>(args.clip);
    f.rest = static_cast<float>(1 - double{args.step.momentum});
    f.nesterov = args.step.nesterov;
    f.seed = args.step.seed;
    f.stream = args.step.stream;
    f.first = args.first;
    const bool whole = packs_of(4, 1, args.update) && packs_of(4, 1, args.buffer) && packs_of(4, 1, args.grad);
    launch<4>(context, muon_momentum, args.grad.dim(0), whole, f);
  });
}

void normalize(Context& context, const MuonNormalize& args) {
  check(args);
  const int64_t rows = args.update.dim(0), cols = args.update.dim(1);
  if (args.update.size() == 0) return;
  with_storage(muon_normalize, args.x.dtype, [&](auto type) {
    using To = decltype(type);
    const auto* update = numbers<const float>(args.update);
    const auto* squares = numbers<const double>(args.squares);
    if (!args.transposed) {
      const bool whole = packs_of(4, 1, args.x) && packs_of(4, 1, args.update);
      return launch<4>(context, muon_normalize, args.update.size(), whole,
                       Divide<To>{numbers<To>(args.x), update, squares, args.eps});
    }
    const dim3 blocks(static_cast<unsigned>((rows + tile - 1) / tile), static_cast<unsigned>((cols + tile - 1) / tile));
    transpose_kernel<To><<<blocks, dim3(tile, tile_rows), 0, cuda_stream(context)>>>(numbers<To>(args.x), update,
                                                                                     squares, args.eps, rows, cols);
    check_launch(muon_normalize);
  });
}

void sum(Context& context, const ScaledSum& args) {
  check(args);
  with_storage(scaled_sum, args.y.dtype, [&](auto to) {
    with_storage(scaled_sum, args.x.dtype, [&](auto from) {
      using Y = decltype(to);
      using X = decltype(from);
      launch<4>(context, scaled_sum, args.y.dim(0), packs_of(4, 1, args.y) && packs_of(4, 1, args.x),
                Sum<Y, X>{numbers<Y>(args.y), numbers<const X>(args.x), args.a, args.b});
    });
  });
}

void apply(Context& context, const MuonApply& args) {
  check(args);
  with_storage(muon_apply, args.direction.dtype, [&](auto type) {
    using From = decltype(type);
    Apply<From> f;
    f.value = numbers<float>(args.value);
    f.rounded = numbers<__nv_bfloat16>(args.rounded);
    f.direction = numbers<const From>(args.direction);
    f.first = args.first;
    f.rows = args.direction.dim(args.transposed ? 1 : 0);
    f.cols = args.direction.dim(args.transposed ? 0 : 1);
    f.transposed = args.transposed;
    f.keep = args.keep;
    f.rate = args.rate;
    launch<1>(context, muon_apply, args.value.dim(0), false, f);
  });
}

[[maybe_unused]] const bool added = muon_momentum.add({"elementwise", DeviceKind::cuda, momentum}) &&
                                    muon_normalize.add({"elementwise", DeviceKind::cuda, normalize}) &&
                                    scaled_sum.add({"elementwise", DeviceKind::cuda, sum}) &&
                                    muon_apply.add({"elementwise", DeviceKind::cuda, apply});

}  // namespace
}  // namespace hone
