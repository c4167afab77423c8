#include "kernels/check_shape.h"
#include "kernels/column_sums.cuh"
#include "kernels/rmsnorm.h"
#include "kernels/row_tile.cuh"

namespace hone {
namespace {

constexpr int forward_packs = 8, forward_warps = 32, backward_packs = 6, backward_warps = 16;  // at most

struct Forward {
  int64_t rows, y_stride, x_stride;
  int dim, warps;
  float eps;
};

template <class T, int P, bool whole>
__global__ void forward_kernel(T* y, float* rstd, const T* x, const T* w, Forward s) {
  constexpr int N = pack_size<T>;
  using Tile = RowTile<T, P>;
  __shared__ float shared[32];
  const RowThread at(s.warps);
  const int64_t row = int64_t{blockIdx.x} * (blockDim.x / at.threads) + at.row;
  if (row >= s.rows) return;
  Tile in, weight;
  in.load(Row<const T, whole>{x + row * s.x_stride, s.dim}, at);
  weight.load(Row<const T, whole>{w, s.dim}, at);
  float part[2] = {};
#pragma unroll
  for (int p = 0; p < P; ++p) {
    float v[N];
    in.get(p, v);
#pragma unroll
    for (int j = 0; j < N; ++j) part[j % 2] = fmaf(v[j], v[j], part[j % 2]);
  }
  const float scale = rsqrtf(row_sum(part[0] + part[1], at, shared) / static_cast<float>(s.dim) + s.eps);
  in.forget_unpacked();
#pragma unroll
  for (int p = 0; p < P; ++p) {
    float v[N], factor[N];
    in.get(p, v), weight.get(p, factor);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = v[j] * scale * factor[j];
    Row<T, whole>{y + row * s.y_stride, s.dim}.store(Tile::column(p, at), v);
  }
  if (rstd && at.thread == 0) rstd[row] = scale;
}

struct Backward {
  int64_t rows, dx_stride, dy_stride, x_stride;
  int dim, warps, rows_a_block;
};

// Each block has a range of rows, each group of warps every so many of them; partial [blocks, dim] gets the block's part of dw, or is null.
template <class T, int P, bool whole, bool accumulate>
__global__ void __launch_bounds__(512) backward_kernel(T* dx, float* partial, const T* dy, const T* x, const float* rstd, const T* w, Backward s) {
  constexpr int N = pack_size<T>;
  using Tile = RowTile<T, P>;
  extern __shared__ float sums[];
  __shared__ float shared[2][16];
  const RowThread at(s.warps);
  const int groups = static_cast<int>(blockDim.x) / at.threads;
  const int64_t begin = int64_t{blockIdx.x} * s.rows_a_block, end = min(begin + s.rows_a_block, s.rows);
  const Row<const T, whole> weight{w, s.dim};
  float dw[P][N] = {};
  int parity = 0;
  for (int64_t row = begin + at.row; row < end; row += groups, parity ^= 1) {
    Tile in, grad;
    in.load(Row<const T, whole>{x + row * s.x_stride, s.dim}, at);
    grad.load(Row<const T, whole>{dy + row * s.dy_stride, s.dim}, at);
    const float scale = rstd[row];
    float part[2] = {};
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N], g[N], factor[N];
      unpack(factor, weight.load(Tile::column(p, at)));
      in.get(p, v), grad.get(p, g);
#pragma unroll
      for (int j = 0; j < N; ++j) part[j % 2] = fmaf(g[j] * factor[j], v[j], part[j % 2]);
    }
    const float pull = row_sum(part[0] + part[1], at, shared[parity]) * scale * scale / static_cast<float>(s.dim);
    in.forget_unpacked(), grad.forget_unpacked();
    const Row<T, whole> out{dx + row * s.dx_stride, s.dim};
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N], g[N], factor[N], value[N];
      unpack(factor, weight.load(Tile::column(p, at)));
      in.get(p, v), grad.get(p, g);
      if (accumulate) unpack(value, out.load(Tile::column(p, at)));
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float change = scale * fmaf(-pull, v[j], g[j] * factor[j]);
        value[j] = accumulate ? value[j] + change : change;
        dw[p][j] = fmaf(g[j], v[j] * scale, dw[p][j]);
      }
      out.store(Tile::column(p, at), value);
    }
  }
  if (partial) add_groups<T, P>(partial + int64_t{blockIdx.x} * s.dim, sums, dw, s.dim, at, groups);
}

void forward(Context& context, Tensor y, Tensor rstd, Tensor x, Tensor w, float eps) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(rmsnorm_forward, "x", x, {rows, dim}, x.dtype);
  check_shape(rmsnorm_forward, "y", y, {rows, dim}, x.dtype);
  check_shape(rmsnorm_forward, "w", w, {dim}, x.dtype);
  check_optional(rmsnorm_forward, "rstd", rstd, {rows});
  if (rows == 0 || dim == 0) return;
  with_storage(rmsnorm_forward, x.dtype, [&](auto type) {
    using T = decltype(type);
    const RowShape shape = row_shape(rmsnorm_forward, dim, pack_size<T>, forward_packs, forward_warps);
    const Forward s{rows, y.row_stride, x.row_stride, static_cast<int>(dim), shape.warps, eps};
    const int rows_a_block = shape.warps == 1 ? 4 : 1;
    with_shape<forward_packs>(shape, packs<T>(x) && packs<T>(y) && begins_pack(w), [&](auto P, auto whole) {
      forward_kernel<T, P, whole>
          <<<static_cast<unsigned>((rows + rows_a_block - 1) / rows_a_block), 32 * shape.warps * rows_a_block, 0, cuda_stream(context)>>>(
              numbers<T>(y), numbers<float>(rstd), numbers<const T>(x), numbers<const T>(w), s);
    });
  });
  check_launch(rmsnorm_forward);
}

void backward(Context& context, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor rstd, Tensor w, bool accumulate) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(rmsnorm_backward, "x", x, {rows, dim}, x.dtype);
  check_shape(rmsnorm_backward, "dx", dx, {rows, dim}, x.dtype);
  check_shape(rmsnorm_backward, "dy", dy, {rows, dim}, x.dtype);
  check_shape(rmsnorm_backward, "w", w, {dim}, x.dtype);
  check_optional(rmsnorm_backward, "dw", dw, {dim});
  check_shape(rmsnorm_backward, "rstd", rstd, {rows});
  if (rows == 0 || dim == 0) return;
  const ScratchScope scope(context);
  with_storage(rmsnorm_backward, x.dtype, [&](auto type) {
    using T = decltype(type);
    const RowShape shape = row_shape(rmsnorm_backward, dim, pack_size<T>, backward_packs, backward_warps);
    const RowBlocks blocks(rows, shape.warps);
    const Tensor partial = dw ? context.scratch().take(DType::f32, {blocks.count, dim}) : Tensor();
    const Backward s{rows, dx.row_stride, dy.row_stride, x.row_stride, static_cast<int>(dim), shape.warps, blocks.rows_a_block};
    const bool whole_rows = packs<T>(dx) && packs<T>(dy) && packs<T>(x) && begins_pack(w);
    const size_t shared = blocks.groups > 1 ? static_cast<size_t>(dim) * sizeof(float) : 0;
    with_shape<backward_packs>(shape, whole_rows, [&](auto P, auto whole) {
      const auto kernel = accumulate ? backward_kernel<T, P, whole, true> : backward_kernel<T, P, whole, false>;
      kernel<<<blocks.count, blocks.threads, shared, cuda_stream(context)>>>(numbers<T>(dx), numbers<float>(partial), numbers<const T>(dy),
                                                                             numbers<const T>(x), numbers<const float>(rstd), numbers<const T>(w), s);
    });
    check_launch(rmsnorm_backward);
    if (dw) add_column_sums(context, rmsnorm_backward, dw, partial);
  });
}

[[maybe_unused]] const bool added =
    rmsnorm_forward.add({"rows", DeviceKind::cuda, forward}) && rmsnorm_backward.add({"rows", DeviceKind::cuda, backward});

}  // namespace
}  // namespace hone
