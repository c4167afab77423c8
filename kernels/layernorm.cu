#include "kernels/check_shape.h"
#include "kernels/column_sums.cuh"
#include "kernels/layernorm.h"
#include "kernels/row_tile.cuh"

namespace hone {
namespace {

// at most; two sums of every column take a thread's registers in the backward pass
constexpr int forward_packs = 8, forward_warps = 32, backward_packs = 4, backward_warps = 16;

struct Forward {
  int64_t rows, y_stride, x_stride;
  int dim, warps;
  float eps;
};

template <class T, int P, bool whole>
__global__ void forward_kernel(T* y, float* mean, float* rstd, const T* x, const T* w, const T* b, Forward s) {
  constexpr int N = pack_size<T>;
  using Tile = RowTile<T, P>;
  __shared__ float shared[2][32];
  const RowThread at(s.warps);
  const int64_t row = int64_t{blockIdx.x} * (blockDim.x / at.threads) + at.row;
  if (row >= s.rows) return;
  Tile in;
  in.load(Row<const T, whole>{x + row * s.x_stride, s.dim}, at);
  float sum[2] = {}, squares[2] = {};
#pragma unroll
  for (int p = 0; p < P; ++p) {
    float v[N];
    in.get(p, v);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j % 2] += v[j];
  }
  const float center = row_sum(sum[0] + sum[1], at, shared[0]) / static_cast<float>(s.dim);
  in.forget_unpacked();
#pragma unroll
  for (int p = 0; p < P; ++p) {
    float v[N];
    in.get(p, v);
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (Tile::column(p, at) + j < s.dim) squares[j % 2] = fmaf(v[j] - center, v[j] - center, squares[j % 2]);
  }
  const float scale = rsqrtf(row_sum(squares[0] + squares[1], at, shared[1]) / static_cast<float>(s.dim) + s.eps);
  in.forget_unpacked();
#pragma unroll
  for (int p = 0; p < P; ++p) {
    float v[N], factor[N], bias[N] = {};
    const int column = Tile::column(p, at);
    in.get(p, v);
    unpack(factor, Row<const T, whole>{w, s.dim}.load(column));
    if (b) unpack(bias, Row<const T, whole>{b, s.dim}.load(column));
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = fmaf((v[j] - center) * scale, factor[j], bias[j]);
    Row<T, whole>{y + row * s.y_stride, s.dim}.store(column, v);
  }
  if (at.thread > 0) return;
  if (mean) mean[row] = center;
  if (rstd) rstd[row] = scale;
}

struct Backward {
  int64_t rows, dx_stride, dy_stride, x_stride;
  int dim, warps, rows_a_block;
  bool accumulate;
};

// Each block has a range of rows, each group of warps every so many of them; dw_partial, db_partial [blocks, dim] get the block's part, or are null.
template <class T, int P, bool whole>
__global__ void __launch_bounds__(512) backward_kernel(T* dx, float* dw_partial, float* db_partial, const T* dy, const T* x, const float* mean,
                                                       const float* rstd, const T* w, Backward s) {
  constexpr int N = pack_size<T>;
  using Tile = RowTile<T, P>;
  extern __shared__ float sums[];
  __shared__ float shared[2][2][16];
  const RowThread at(s.warps);
  const int groups = static_cast<int>(blockDim.x) / at.threads;
  const int64_t begin = int64_t{blockIdx.x} * s.rows_a_block, end = min(begin + s.rows_a_block, s.rows);
  const Row<const T, whole> weight{w, s.dim};
  float dw[P][N] = {}, db[P][N] = {};
  int parity = 0;
  for (int64_t row = begin + at.row; row < end; row += groups, parity ^= 1) {
    Tile in, grad;
    in.load(Row<const T, whole>{x + row * s.x_stride, s.dim}, at);
    grad.load(Row<const T, whole>{dy + row * s.dy_stride, s.dim}, at);
    const float center = mean[row], scale = rstd[row];
    float sum = 0, dot = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N], g[N], factor[N];
      unpack(factor, weight.load(Tile::column(p, at)));
      in.get(p, v), grad.get(p, g);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        sum = fmaf(g[j], factor[j], sum);
        dot = fmaf(g[j] * factor[j], (v[j] - center) * scale, dot);
      }
    }
    sum = row_sum(sum, at, shared[parity][0]) / static_cast<float>(s.dim);
    dot = row_sum(dot, at, shared[parity][1]) / static_cast<float>(s.dim);
    in.forget_unpacked(), grad.forget_unpacked();
    const Row<T, whole> out{dx + row * s.dx_stride, s.dim};
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N], g[N], factor[N], value[N] = {};
      unpack(factor, weight.load(Tile::column(p, at)));
      in.get(p, v), grad.get(p, g);
      if (s.accumulate) unpack(value, Row<const T, whole>{out.first, s.dim}.load(Tile::column(p, at)));
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float n = (v[j] - center) * scale, change = scale * fmaf(-n, dot, fmaf(g[j], factor[j], -sum));
        value[j] += change;
        dw[p][j] = fmaf(g[j], n, dw[p][j]);
        db[p][j] += g[j];
      }
      out.store(Tile::column(p, at), value);
    }
  }
  if (dw_partial) add_groups<T, P>(dw_partial + int64_t{blockIdx.x} * s.dim, sums, dw, s.dim, at, groups);
  __syncthreads();
  if (db_partial) add_groups<T, P>(db_partial + int64_t{blockIdx.x} * s.dim, sums, db, s.dim, at, groups);
}

void forward(Context& context, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor w, Tensor b, float eps) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(layernorm_forward, "x", x, {rows, dim}, x.dtype);
  check_shape(layernorm_forward, "y", y, {rows, dim}, x.dtype);
  check_shape(layernorm_forward, "w", w, {dim}, x.dtype);
  check_optional(layernorm_forward, "b", b, {dim}, x.dtype);
  check_optional(layernorm_forward, "mean", mean, {rows});
  check_optional(layernorm_forward, "rstd", rstd, {rows});
  if (rows == 0 || dim == 0) return;
  with_storage(layernorm_forward, x.dtype, [&](auto type) {
    using T = decltype(type);
    const RowShape shape = row_shape(layernorm_forward, dim, pack_size<T>, forward_packs, forward_warps);
    const Forward s{rows, y.row_stride, x.row_stride, static_cast<int>(dim), shape.warps, eps};
    const int rows_a_block = shape.warps == 1 ? 4 : 1;
    with_shape<forward_packs>(shape, packs<T>(x) && packs<T>(y) && begins_pack(w) && begins_pack(b), [&](auto P, auto whole) {
      forward_kernel<T, P, whole>
          <<<static_cast<unsigned>((rows + rows_a_block - 1) / rows_a_block), 32 * shape.warps * rows_a_block, 0, cuda_stream(context)>>>(
              numbers<T>(y), numbers<float>(mean), numbers<float>(rstd), numbers<const T>(x), numbers<const T>(w), numbers<const T>(b), s);
    });
  });
  check_launch(layernorm_forward);
}

void backward(Context& context, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor w, bool accumulate) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(layernorm_backward, "x", x, {rows, dim}, x.dtype);
  check_shape(layernorm_backward, "dx", dx, {rows, dim}, x.dtype);
  check_shape(layernorm_backward, "dy", dy, {rows, dim}, x.dtype);
  check_shape(layernorm_backward, "w", w, {dim}, x.dtype);
  check_optional(layernorm_backward, "dw", dw, {dim});
  check_optional(layernorm_backward, "db", db, {dim});
  check_shape(layernorm_backward, "mean", mean, {rows});
  check_shape(layernorm_backward, "rstd", rstd, {rows});
  if (rows == 0 || dim == 0) return;
  const ScratchScope scope(context);
  with_storage(layernorm_backward, x.dtype, [&](auto type) {
    using T = decltype(type);
    const RowShape shape = row_shape(layernorm_backward, dim, pack_size<T>, backward_packs, backward_warps);
    const RowBlocks blocks(rows, shape.warps);
    const auto partial_of = [&](const Tensor& sum) { return sum ? context.scratch().take(DType::f32, {blocks.count, dim}) : Tensor(); };
    const Tensor dw_partial = partial_of(dw), db_partial = partial_of(db);
    const Backward s{rows, dx.row_stride, dy.row_stride, x.row_stride, static_cast<int>(dim), shape.warps, blocks.rows_a_block, accumulate};
    const bool whole_rows = packs<T>(dx) && packs<T>(dy) && packs<T>(x) && begins_pack(w);
    const size_t shared = blocks.groups > 1 ? static_cast<size_t>(dim) * sizeof(float) : 0;
    with_shape<backward_packs>(shape, whole_rows, [&](auto P, auto whole) {
      backward_kernel<T, P, whole><<<blocks.count, blocks.threads, shared, cuda_stream(context)>>>(
          numbers<T>(dx), numbers<float>(dw_partial), numbers<float>(db_partial), numbers<const T>(dy), numbers<const T>(x),
          numbers<const float>(mean), numbers<const float>(rstd), numbers<const T>(w), s);
    });
    check_launch(layernorm_backward);
    if (dw) add_column_sums(context, layernorm_backward, dw, dw_partial);
    if (db) add_column_sums(context, layernorm_backward, db, db_partial);
  });
}

[[maybe_unused]] const bool added =
    layernorm_forward.add({"rows", DeviceKind::cuda, forward}) && layernorm_backward.add({"rows", DeviceKind::cuda, backward});

}  // namespace
}  // namespace hone
