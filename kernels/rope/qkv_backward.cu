// qkv_backward on a GPU: inverse rotation and, with head norms, their gradients.
//
// Use       every dtype, alignment and head dimension of qkv.cuh.
// Tile      rotate_kernel: as qkv.cu. norm_kernel: one head of a range of at least 64 tokens per block, about 792
//           blocks. add_partials: 32 columns of one norm weight per block.
// Roles     256 threads in groups of 1 to 32 lanes (layout: qkv.cuh). add_partials: 32 columns by 32 slices.
// Pipeline  none.
// Smem      norm_kernel: static 8 to 32 KB (one set of weight gradients per lane group). add_partials: static 4.1 KB.
// Numerics  f32. Weight gradients: tokens of a group in ascending order, then groups, then ranges of tokens (32 slices,
//           then ascending). The shapes decide the order.
// PDL       none.
// Limits    fewer than 524,288 tokens.
#include "kernels/adds_once.h"
#include "kernels/rope/qkv.cuh"
#include "kernels/rope/qkv_args.h"

namespace hone {
namespace {

template <class T>
struct Backward {
  HeadLayout layout;
  int tokens, heads, kv_heads;
  int tokens_per_piece;  // tokens per range, if there are norms
  T* dqkv;
  const T *dq, *dk, *qkv, *q_norm, *k_norm;
  const float *rstd, *cos_sin;
  const int32_t* positions;
  float norm_offset;
  float* partial = nullptr;  // [heads + kv_heads, ranges, dim]: weight gradients of each block
  int64_t dqkv_stride, dq_stride, dk_stride, rstd_stride, qkv_stride, cos_sin_stride;
};

// Without norms: the inverse rotation. Thread blocks as in forward.
template <class T, int P, int N>
__global__ void __launch_bounds__(qkv_threads) rotate_kernel(const Backward<T> a) {
  constexpr int R = heads_at_once<N>;
  const HeadLayout& layout = a.layout;
  const HeadChunk chunk(a.heads, a.kv_heads, R);
  const int lane = layout.lane(), t = static_cast<int>(blockIdx.y) * layout.groups() + layout.group();
  if (t >= a.tokens) return;
  const bool turns = layout.half > 0;
  const int64_t position = turns ? a.positions[t] : 0;
  const T* const from =
      (chunk.is_query ? a.dq + t * a.dq_stride : a.dk + t * a.dk_stride) + int64_t{chunk.first} * layout.dim;
  StoredPart<T, P, N> stored[R];
#pragma unroll
  for (int r = 0; r < R; ++r) stored[r] = load_head<P, N>(from + r * layout.dim, layout, lane, r < chunk.count);
  const auto angles = load_angles<P, N>(a.cos_sin + position * a.cos_sin_stride, layout, lane, turns);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (r >= chunk.count) break;
    HeadPart<P, N> g;
    convert<P, N>(g, stored[r], layout, lane);
    rotate_head<P, N>(g, angles, layout, lane, -1);
    store_head<P, N>(a.dqkv + t * a.dqkv_stride + int64_t{chunk.column + r} * layout.dim, g, layout, lane);
  }
}

// With norms: a block loops over one head of a range of tokens, and sums the gradient of the norm's weight.
template <class T, int P, int N>
__global__ void __launch_bounds__(qkv_threads, N == 1 ? 3 : 1) norm_kernel(const Backward<T> a) {
  __shared__ float sums[qkv_threads * N * 2 * P];
  const HeadLayout& layout = a.layout;
  const HeadChunk chunk(a.heads, a.kv_heads, 1);
  const int lane = layout.lane(), groups = layout.groups();
  const int begin = static_cast<int>(blockIdx.y) * a.tokens_per_piece, end = min(begin + a.tokens_per_piece, a.tokens);
  const int64_t column = int64_t{chunk.column} * layout.dim;
  const T* const dy = (chunk.is_query ? a.dq : a.dk) + int64_t{chunk.first} * layout.dim;
  const int64_t dy_stride = chunk.is_query ? a.dq_stride : a.dk_stride;
  const auto stored_weight = load_head<P, N>(chunk.is_query ? a.q_norm : a.k_norm, layout, lane, true);
  HeadPart<P, N> dweight = {};
  for (int first = begin; first < end; first += groups) {
    const int token = first + layout.group();
    const bool inside = token < end, turns = inside && layout.half > 0;
    const int64_t t = inside ? token : 0, position = turns ? a.positions[t] : 0;
    const auto stored_g = load_head<P, N>(dy + t * dy_stride, layout, lane, inside);
    const auto stored_x = load_head<P, N>(a.qkv + t * a.qkv_stride + column, layout, lane, inside);
    const float scale = inside ? a.rstd[t * a.rstd_stride + chunk.column] : 0;
    const auto angles = load_angles<P, N>(a.cos_sin + position * a.cos_sin_stride, layout, lane, turns);
    // Inverse rotation; then the gradient of the norm.
    HeadPart<P, N> g, x, weight;
    convert<P, N>(g, stored_g, layout, lane);
    if (turns) rotate_head<P, N>(g, angles, layout, lane, -1);
    convert<P, N>(x, stored_x, layout, lane);
    convert<P, N>(weight, stored_weight, layout, lane);
    // Weight gradient of this lane's elements, and the dot product of the head.
    float dot = 0;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int side = 0; side < 2; ++side)
#pragma unroll
        for (int i = 0; i < P; ++i) {
          dweight[n][side][i] = fmaf(g[n][side][i], x[n][side][i] * scale, dweight[n][side][i]);
          g[n][side][i] *= weight[n][side][i] + a.norm_offset;
          dot = fmaf(g[n][side][i], x[n][side][i], dot);
        }
    // Gradient of the head before the norm.
    const float pull = head_sum(dot, layout.lanes) * scale * scale / static_cast<float>(layout.dim);
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int side = 0; side < 2; ++side)
#pragma unroll
        for (int i = 0; i < P; ++i) g[n][side][i] = scale * fmaf(-pull, x[n][side][i], g[n][side][i]);
    if (inside) store_head<P, N>(a.dqkv + t * a.dqkv_stride + column, g, layout, lane);
  }
  // Sum the lane groups of the block.
  if (!a.partial) return;
  HeadLayout plain = layout;
  plain.packed = false;
  store_head<P, N>(sums + layout.group() * layout.dim, dweight, plain, lane);
  __syncthreads();  // the sums of all groups are in shared memory
  for (int i = static_cast<int>(threadIdx.x); i < layout.dim; i += qkv_threads) {
    float sum = 0;
    for (int from = 0; from < groups; ++from) sum += sums[from * layout.dim + i];
    a.partial[(int64_t{chunk.column} * gridDim.y + blockIdx.y) * layout.dim + i] = sum;
  }
}

constexpr int slices = 32;

// dw [dim] += the sum of partial's rows. Each slice takes every 32nd row; slices are added in ascending order. One
// block per 32 columns of q's norm or k's norm.
__global__ void add_partials(float* dq_norm, float* dk_norm, const float* partial, int q_rows, int rows, int dim) {
  __shared__ float sums[slices][33];
  const bool is_query = blockIdx.y == 0;
  const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  const int begin = is_query ? 0 : q_rows, end = is_query ? q_rows : rows;
  float sum = 0;
  if (column < dim)
    for (int row = begin + static_cast<int>(threadIdx.y); row < end; row += slices)
      sum += partial[int64_t{row} * dim + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();  // the sums of all slices are in shared memory
  if (threadIdx.y != 0 || column >= dim) return;
  for (int s = 1; s < slices; ++s) sum += sums[s][threadIdx.x];
  (is_query ? dq_norm : dk_norm)[column] += sum;
}

constexpr int wanted_blocks = 792, least_tokens = 64;

void backward(Context& context, const QkvBackward& args) {
  check_qkv_backward(args, args.qkv.dtype);
  if (args.qkv.dim(0) == 0) return;
  bool packed = true;
  for (const Tensor& x : {args.dqkv, args.dq, args.dk, args.qkv, args.cos_sin, args.q_norm, args.k_norm})
    packed = packed && on_16_bytes(x);
  with_head_layout(
      qkv_backward, args.qkv.dtype, args.shape, packed, [&](auto type, auto P, auto N, const HeadLayout& layout) {
        using T = decltype(type);
        Backward<T> a;
        a.layout = layout;
        a.tokens = num_tokens(qkv_backward, args.qkv);
        a.heads = static_cast<int>(args.shape.num_heads);
        a.kv_heads = static_cast<int>(args.shape.num_kv_heads);
        a.dqkv = numbers<T>(args.dqkv);
        a.dq = numbers<const T>(args.dq);
        a.dk = numbers<const T>(args.dk);
        a.qkv = numbers<const T>(args.qkv);
        a.q_norm = numbers<const T>(args.q_norm);
        a.k_norm = numbers<const T>(args.k_norm);
        a.rstd = numbers<const float>(args.rstd);
        a.cos_sin = numbers<const float>(args.cos_sin);
        a.positions = numbers<const int32_t>(args.positions);
        a.norm_offset = args.shape.norm_offset;
        a.dqkv_stride = args.dqkv.row_stride;
        a.dq_stride = args.dq.row_stride;
        a.dk_stride = args.dk.row_stride;
        a.rstd_stride = args.rstd.row_stride;
        a.qkv_stride = args.qkv.row_stride;
        a.cos_sin_stride = args.cos_sin.row_stride;
        if (!args.q_norm) {
          const dim3 grid = chunk_grid(layout, args.shape, heads_at_once<N()>, 1, a.tokens);
          rotate_kernel<T, P(), N()><<<grid, qkv_threads, 0, cuda_stream(context)>>>(a);
          return check_launch(qkv_backward);
        }
        const int all_heads = a.heads + a.kv_heads, wanted_pieces = (wanted_blocks - 1) / all_heads + 1;
        a.tokens_per_piece = std::max(least_tokens, (a.tokens - 1) / wanted_pieces + 1);
        const int pieces = (a.tokens - 1) / a.tokens_per_piece + 1;
        const ScratchScope scope(context);
        const bool weights = args.dq_norm && (args.dk_norm || a.kv_heads == 0);
        if (weights)
          a.partial =
              numbers<float>(context.scratch().take(DType::f32, {int64_t{all_heads} * pieces, args.shape.head_dim}));
        norm_kernel<T, P(), N()><<<dim3(static_cast<unsigned>(all_heads), static_cast<unsigned>(pieces)), qkv_threads,
                                   0, cuda_stream(context)>>>(a);
        check_launch(qkv_backward);
        if (!weights) return;
        const dim3 grid(static_cast<unsigned>((args.shape.head_dim + 31) / 32), a.kv_heads > 0 ? 2 : 1);
        add_partials<<<grid, dim3(32, slices), 0, cuda_stream(context)>>>(
            numbers<float>(args.dq_norm), numbers<float>(args.dk_norm), a.partial, a.heads * pieces, all_heads * pieces,
            layout.dim);
        check_launch(qkv_backward);
      });
}

[[maybe_unused]] const bool added =
    qkv_backward.add({"heads", DeviceKind::cuda, backward}) && declare_adds_once(qkv_backward, DeviceKind::cuda);

}  // namespace
}  // namespace hone
