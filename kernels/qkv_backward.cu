#include "kernels/qkv.cuh"
#include "kernels/qkv_args.h"

namespace hone {
namespace {

template <class T>
struct Backward {
  HeadLayout layout;
  int heads, kv_heads;
  uint32_t tokens, rows_per_piece;
  unsigned q_pieces;  // blocks of q heads come first, then those of k heads
  T* dqkv;
  const T *dq, *dk, *qkv, *q_norm, *k_norm;
  const float *rstd, *cos_sin;
  const int32_t* positions;
  float* partial = nullptr;  // [blocks, dim]: the norms' weight gradients of each block
  int64_t dqkv_stride, dq_stride, dk_stride, rstd_stride, qkv_stride, cos_sin_stride;
};

// A block goes through one piece of the (token, head) rows of q, or of k.
template <class T, int P, int N, bool norms>
__global__ void __launch_bounds__(qkv_threads) backward_kernel(const Backward<T> a) {
  __shared__ float sums[norms ? qkv_threads * N * 2 * P : 1];
  const HeadLayout& layout = a.layout;
  const int lane = static_cast<int>(threadIdx.x) % layout.lanes;
  const uint32_t groups = static_cast<uint32_t>(qkv_threads / layout.lanes), group = threadIdx.x / static_cast<uint32_t>(layout.lanes);
  const bool is_query = blockIdx.x < a.q_pieces;
  const auto heads = static_cast<uint32_t>(is_query ? a.heads : a.kv_heads);
  const uint32_t rows = a.tokens * heads, begin = (is_query ? blockIdx.x : blockIdx.x - a.q_pieces) * a.rows_per_piece;
  const uint32_t end = min(begin + a.rows_per_piece, rows);
  HeadPart<P, N> weight, dweight;
  if constexpr (norms) {
    convert<P, N>(weight, load_head<P, N>(is_query ? a.q_norm : a.k_norm, layout, lane, true));
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < P; ++i) dweight[n][0][i] = dweight[n][1][i] = 0;
  }
  for (uint32_t first = begin; first < end; first += groups) {
    const uint32_t row = first + group;
    const bool inside = row < end;
    const int64_t t = inside ? row / heads : 0, h = inside ? row % heads : 0;
    const int64_t column = (is_query ? h : h + a.heads) * layout.dim;
    const bool turns = inside && layout.half > 0;
    const int64_t position = turns ? a.positions[t] : 0;
    const auto stored_g =
        load_head<P, N>(is_query ? a.dq + t * a.dq_stride + h * layout.dim : a.dk + t * a.dk_stride + h * layout.dim, layout, lane, inside);
    StoredPart<T, P, N> stored_x;
    float scale = 0;
    if constexpr (norms) {
      stored_x = load_head<P, N>(a.qkv + t * a.qkv_stride + column, layout, lane, inside);
      if (inside) scale = a.rstd[t * a.rstd_stride + (is_query ? h : h + a.heads)];
    }
    const auto angles = load_angles<P, N>(a.cos_sin + position * a.cos_sin_stride, layout, lane, turns);
    HeadPart<P, N> g;
    convert<P, N>(g, stored_g);
    if (turns) rotate_head<P, N>(g, angles, layout, lane, -1);
    if constexpr (norms) {
      HeadPart<P, N> x;
      convert<P, N>(x, stored_x);
      float dot = 0;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int side = 0; side < 2; ++side)
#pragma unroll
          for (int i = 0; i < P; ++i) {
            dweight[n][side][i] = fmaf(g[n][side][i], x[n][side][i] * scale, dweight[n][side][i]);
            g[n][side][i] *= weight[n][side][i];
            dot = fmaf(g[n][side][i], x[n][side][i], dot);
          }
      const float pull = head_sum(dot, layout.lanes) * scale * scale / static_cast<float>(layout.dim);
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int side = 0; side < 2; ++side)
#pragma unroll
          for (int i = 0; i < P; ++i) g[n][side][i] = scale * fmaf(-pull, x[n][side][i], g[n][side][i]);
    }
    if (inside) store_head<P, N>(a.dqkv + t * a.dqkv_stride + column, g, layout, lane);
  }
  if constexpr (norms) {
    if (!a.partial) return;
    HeadLayout plain = layout;
    plain.packed = false;
    store_head<P, N>(sums + group * static_cast<uint32_t>(layout.dim), dweight, plain, lane);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < layout.dim; i += qkv_threads) {
      float sum = 0;
      for (uint32_t from = 0; from < groups; ++from) sum += sums[from * static_cast<uint32_t>(layout.dim) + static_cast<uint32_t>(i)];
      a.partial[int64_t{blockIdx.x} * layout.dim + i] = sum;
    }
  }
}

constexpr int slices = 32;

// dw [dim] += the sum of partial's rows: each slice takes every 32nd, then slices are added in ascending order. One block for q's norm, one for k's,
// for every 32 columns.
__global__ void add_partials(float* dq_norm, float* dk_norm, const float* partial, unsigned q_pieces, unsigned pieces, int dim) {
  __shared__ float sums[slices][33];
  const bool is_query = blockIdx.y == 0;
  const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  const unsigned begin = is_query ? 0 : q_pieces, end = is_query ? q_pieces : pieces;
  float sum = 0;
  if (column < dim)
    for (unsigned p = begin + threadIdx.y; p < end; p += slices) sum += partial[int64_t{p} * dim + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= dim) return;
  for (int s = 1; s < slices; ++s) sum += sums[s][threadIdx.x];
  (is_query ? dq_norm : dk_norm)[column] += sum;
}

// Weight gradients are added up within a piece: pieces are then few and of one size. Without them a piece is what a block does at once.
constexpr uint32_t wanted_pieces = 528, least_rows = 128;

void backward(Context& context, Tensor dqkv, Tensor dq_norm, Tensor dk_norm, Tensor dq, Tensor dk, Tensor rstd, Tensor qkv, Tensor positions,
              Tensor cos_sin, Tensor q_norm, Tensor k_norm, QkvShape shape) {
  check_qkv_backward(dqkv, dq_norm, dk_norm, dq, dk, rstd, qkv, positions, cos_sin, q_norm, k_norm, shape, qkv.dtype);
  const int64_t tokens = qkv.dim(0);
  if (tokens == 0) return;
  const uint32_t rows = num_rows(qkv_backward, tokens * (shape.num_heads + shape.num_kv_heads)),
                 q_rows = static_cast<uint32_t>(tokens * shape.num_heads);
  const bool weights = q_norm && dq_norm && dk_norm;
  bool packed = true;
  for (const Tensor& x : {dqkv, dq, dk, qkv, cos_sin, q_norm, k_norm}) packed = packed && on_16_bytes(x);
  const ScratchScope scope(context);
  with_head_layout(qkv_backward, qkv.dtype, shape, packed, [&](auto type, auto P, auto N, const HeadLayout& layout) {
    using T = decltype(type);
    Backward<T> a;
    a.layout = layout, a.heads = static_cast<int>(shape.num_heads), a.kv_heads = static_cast<int>(shape.num_kv_heads);
    a.tokens = static_cast<uint32_t>(tokens);
    a.rows_per_piece = weights ? std::max(least_rows, (rows - 1) / wanted_pieces + 1) : static_cast<uint32_t>(qkv_threads / layout.lanes);
    a.q_pieces = (q_rows - 1) / a.rows_per_piece + 1;
    const unsigned pieces = a.q_pieces + (rows - q_rows - 1) / a.rows_per_piece + 1;
    if (weights) a.partial = numbers<float>(context.scratch().take(DType::f32, {int64_t{pieces}, shape.head_dim}));
    a.dqkv = numbers<T>(dqkv), a.dq = numbers<const T>(dq), a.dk = numbers<const T>(dk), a.qkv = numbers<const T>(qkv);
    a.q_norm = numbers<const T>(q_norm), a.k_norm = numbers<const T>(k_norm);
    a.rstd = numbers<const float>(rstd), a.cos_sin = numbers<const float>(cos_sin), a.positions = numbers<const int32_t>(positions);
    a.dqkv_stride = dqkv.row_stride, a.dq_stride = dq.row_stride, a.dk_stride = dk.row_stride, a.rstd_stride = rstd.row_stride;
    a.qkv_stride = qkv.row_stride, a.cos_sin_stride = cos_sin.row_stride;
    if (q_norm)
      backward_kernel<T, P(), N(), true><<<pieces, qkv_threads, 0, cuda_stream(context)>>>(a);
    else
      backward_kernel<T, P(), N(), false><<<pieces, qkv_threads, 0, cuda_stream(context)>>>(a);
    check_launch(qkv_backward);
    if (!weights) return;
    const dim3 grid(static_cast<unsigned>((shape.head_dim + 31) / 32), 2);
    add_partials<<<grid, dim3(32, slices), 0, cuda_stream(context)>>>(numbers<float>(dq_norm), numbers<float>(dk_norm), a.partial, a.q_pieces, pieces,
                                                                      static_cast<int>(shape.head_dim));
    check_launch(qkv_backward);
  });
}

[[maybe_unused]] const bool added = qkv_backward.add({"heads", DeviceKind::cuda, backward});

}  // namespace
}  // namespace hone
