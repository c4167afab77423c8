// layernorm_forward and layernorm_backward on a GPU.
//
// Use       every dtype and alignment.
// Tile      one row per group of 1, 2, 4 or 8 warps (row_tile.cuh); a block has several groups and loops over rows.
// Roles     forward: 256 threads, up to 2 blocks per SM, grid-stride over rows. Backward: up to 512 threads, a fixed
//           range of rows per block (RowBlocks); all warps alike.
// Pipeline  forward: the next row is loaded into registers while a row is computed. Backward: 2 smem stages per group
//           (1 if 2 do not fit) of x, dy and, if accumulating, dx (cp.async); each thread reads its own copies only.
// Smem      forward: static 512 bytes. Backward: dynamic stages * (2 or 3) * P * threads * 16 bytes (P vectors per
//           thread), at most 192 KB, or 96 KB with 1 stage, reused for the sums of dw and db; static 512 bytes.
// Numerics  f32. Mean first, then squared deviations (two passes over registers). The order of a row's sums depends on
//           its length and dtype only. dw, db: column_sums.cuh.
// PDL       forward none. Backward triggers dependents before its last sums; the kernel of column_sums.cuh waits.
// Limits    rows up to 8192 bf16 or 4096 f32 elements.
#include "kernels/adds_once.h"
#include "kernels/check_shape.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/norm/column_sums.cuh"
#include "kernels/norm/layernorm.h"
#include "kernels/norm/row_tile.cuh"

namespace hone {
namespace {

// Vectors per thread, warps per row, warps per block, blocks per SM. Backward keeps two sums per column in registers.
constexpr int most_packs = 4, most_warps = 8, forward_warps = 8, forward_blocks = 2;

struct Forward {
  int64_t rows, y_stride, x_stride;
  int dim, warps;
  float eps;
};

// Each group of warps loops over rows; it loads the next row while it computes one.
template <class T, int P, bool whole>
__global__ void __launch_bounds__(32 * forward_warps, forward_blocks)
    forward_kernel(T* y, float* mean, float* rstd, const T* x, const T* w, const T* b, Forward s) {
  constexpr int N = vec_size<T>;
  using Tile = RowTile<T, P>;
  __shared__ float shared[2][2][32];
  const RowThread at(s.warps);
  const int groups = static_cast<int>(blockDim.x) / at.threads;
  const int64_t step = int64_t{gridDim.x} * groups;
  int64_t row = int64_t{blockIdx.x} * groups + at.row;
  if (row >= s.rows) return;
  Tile weight, bias = {}, next;
  next.load(NormRow<const T, whole>{x + row * s.x_stride, s.dim}, at);
  weight.load(NormRow<const T, whole>{w, s.dim}, at);
  if (b) bias.load(NormRow<const T, whole>{b, s.dim}, at);
  for (int parity = 0; row < s.rows; row += step, parity ^= 1) {
    Tile in = next;
    if (row + step < s.rows) next.load(NormRow<const T, whole>{x + (row + step) * s.x_stride, s.dim}, at);
    // Mean of the row.
    float sum[2] = {}, squares[2] = {};
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N];
      in.get(p, v);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j % 2] += v[j];
    }
    const float center = row_sum(sum[0] + sum[1], at, shared[parity][0]) / static_cast<float>(s.dim);
    // Variance: squared deviations from the mean.
    in.forget_unpacked();
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N];
      in.get(p, v);
#pragma unroll
      for (int j = 0; j < N; ++j)
        if (Tile::column(p, at) + j < s.dim) squares[j % 2] = fmaf(v[j] - center, v[j] - center, squares[j % 2]);
    }
    const float scale =
        rsqrtf(row_sum(squares[0] + squares[1], at, shared[parity][1]) / static_cast<float>(s.dim) + s.eps);
    // Normalize, scale and store.
    in.forget_unpacked();
    weight.forget_unpacked();
    bias.forget_unpacked();
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N], factor[N], more[N];
      in.get(p, v);
      weight.get(p, factor);
      bias.get(p, more);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = fmaf((v[j] - center) * scale, factor[j], more[j]);
      NormRow<T, whole>{y + row * s.y_stride, s.dim}.store(Tile::column(p, at), v);
    }
    if (at.thread > 0) continue;
    if (mean) mean[row] = center;
    if (rstd) rstd[row] = scale;
  }
}

struct Backward {
  int64_t rows, dx_stride, dy_stride, x_stride;
  int dim, warps, rows_a_block, stages;
};
constexpr size_t backward_static_bytes = 512;

// Each block has a range of rows; each group of warps takes every groups-th of them, `stages` (1 or 2) in flight.
// dw_partial and db_partial [blocks, dim] receive the block's sums; they may be nullptr.
template <class T, int P, bool whole, bool accumulate>
__global__ void __launch_bounds__(32 * (P > 4 ? 12 : RowBlocks::most_warps))
    backward_kernel(T* dx, float* dw_partial, float* db_partial, const T* dy, const T* x, const float* mean,
                    const float* rstd, const T* w, Backward s) {
  constexpr int N = vec_size<T>;
  extern __shared__ uint4 memory[];
  __shared__ float shared[2][2][32];
  const RowThread at(s.warps);
  const int groups = static_cast<int>(blockDim.x) / at.threads;
  const int64_t begin = int64_t{blockIdx.x} * s.rows_a_block, end = min(begin + s.rows_a_block, s.rows);
  using Fetched = FetchedTile<T, P>;
  enum { of_x, of_dy, of_dx, inputs = accumulate ? 3 : 2 };
  const auto tile = [&](int stage, int input) {
    return Fetched{memory + (stage * inputs + input) * P * blockDim.x + threadIdx.x};
  };
  const auto fetch = [&](int64_t row, int stage) {
    if (row < end) {
      tile(stage, of_x).fetch(NormRow<const T, whole>{x + row * s.x_stride, s.dim}, at);
      tile(stage, of_dy).fetch(NormRow<const T, whole>{dy + row * s.dy_stride, s.dim}, at);
      if (accumulate) tile(stage, of_dx).fetch(NormRow<const T, whole>{dx + row * s.dx_stride, s.dim}, at);
    }
    cp_async_commit();
  };
  fetch(begin + at.row, 0);
  if (s.stages > 1) fetch(begin + at.row + groups, 1);
  RowTile<T, P> weight;
  weight.load(NormRow<const T, whole>{w, s.dim}, at);
  float dw[P][N] = {}, db[P][N] = {};
  int parity = 0;
  int64_t row = begin + at.row;
  for (; row < end; row += groups, parity ^= 1) {
    const int stage = s.stages > 1 ? parity : 0;
    const float center = mean[row], scale = rstd[row];
    // This thread's copies of the row have landed.
    if (s.stages > 1)
      cp_async_wait<1>();
    else
      cp_async_wait<0>();
    // Two sums of the row: of g = dy * w, and of g * n with n the normed x.
    const Fetched in = tile(stage, of_x), grad = tile(stage, of_dy), before = tile(stage, of_dx);
    float sum = 0, dot = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N], g[N], factor[N];
      in.get(p, v);
      grad.get(p, g);
      weight.get(p, factor);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        sum = fmaf(g[j], factor[j], sum);
        dot = fmaf(g[j] * factor[j], (v[j] - center) * scale, dot);
      }
    }
    sum = row_sum(sum, at, shared[parity][0]) / static_cast<float>(s.dim);
    dot = row_sum(dot, at, shared[parity][1]) / static_cast<float>(s.dim);
    // dx of the row; this thread's columns of dw and db.
    weight.forget_unpacked();
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N], g[N], factor[N], value[N] = {};
      in.get(p, v);
      grad.get(p, g);
      weight.get(p, factor);
      if (accumulate) before.get(p, value);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float n = (v[j] - center) * scale;
        value[j] += scale * fmaf(-n, dot, fmaf(g[j], factor[j], -sum));
        dw[p][j] = fmaf(g[j], n, dw[p][j]);
        db[p][j] += g[j];
      }
      NormRow<T, whole>{dx + row * s.dx_stride, s.dim}.store(RowTile<T, P>::column(p, at), value);
    }
    weight.forget_unpacked();
    fetch(row + s.stages * groups, stage);
  }
  // Groups with one row less run the same barriers as the others: racecheck of compute-sanitizer reports false hazards
  // otherwise.
  if (row - at.row < end) {
    row_sum(0, at, shared[parity][0]);
    row_sum(0, at, shared[parity][1]);
  }
  // Sum the groups of the block.
  float* const sums = reinterpret_cast<float*>(memory);
  if (dw_partial) add_groups<T, P, whole>(dw_partial + int64_t{blockIdx.x} * s.dim, sums, dw, s.dim, at);
  if (db_partial) add_groups<T, P, whole>(db_partial + int64_t{blockIdx.x} * s.dim, sums, db, s.dim, at);
}

void forward(Context& context, const LayernormForward& args) {
  const int64_t rows = args.x.dim(0), dim = args.x.dim(1);
  check_shape(layernorm_forward, "x", args.x, {rows, dim}, args.x.dtype);
  check_shape(layernorm_forward, "y", args.y, {rows, dim}, args.x.dtype);
  check_shape(layernorm_forward, "w", args.w, {dim}, args.x.dtype);
  check_optional(layernorm_forward, "b", args.b, {dim}, args.x.dtype);
  check_optional(layernorm_forward, "mean", args.mean, {rows});
  check_optional(layernorm_forward, "rstd", args.rstd, {rows});
  if (rows == 0 || dim == 0) return;
  with_storage(layernorm_forward, args.x.dtype, [&](auto type) {
    using T = decltype(type);
    const RowShape shape = row_shape(layernorm_forward, dim, vec_size<T>, most_packs, most_warps);
    const Forward s{rows, args.y.row_stride, args.x.row_stride, static_cast<int>(dim), shape.warps, args.eps};
    const int groups = forward_warps / shape.warps;
    const int64_t blocks = std::min<int64_t>((rows + groups - 1) / groups, int64_t{num_sms()} * forward_blocks);
    with_shape<most_packs>(
        shape, packs<T>(args.x) && packs<T>(args.y) && begins_pack(args.w) && begins_pack(args.b),
        [&](auto P, auto whole) {
          forward_kernel<T, P, whole>
              <<<static_cast<unsigned>(blocks), 32 * shape.warps * groups, 0, cuda_stream(context)>>>(
                  numbers<T>(args.y), numbers<float>(args.mean), numbers<float>(args.rstd), numbers<const T>(args.x),
                  numbers<const T>(args.w), numbers<const T>(args.b), s);
        });
  });
  check_launch(layernorm_forward);
}

void backward(Context& context, const LayernormBackward& args) {
  const int64_t rows = args.x.dim(0), dim = args.x.dim(1);
  check_shape(layernorm_backward, "x", args.x, {rows, dim}, args.x.dtype);
  check_shape(layernorm_backward, "dx", args.dx, {rows, dim}, args.x.dtype);
  check_shape(layernorm_backward, "dy", args.dy, {rows, dim}, args.x.dtype);
  check_shape(layernorm_backward, "w", args.w, {dim}, args.x.dtype);
  check_optional(layernorm_backward, "dw", args.dw, {dim});
  check_optional(layernorm_backward, "db", args.db, {dim});
  check_shape(layernorm_backward, "mean", args.mean, {rows});
  check_shape(layernorm_backward, "rstd", args.rstd, {rows});
  if (rows == 0 || dim == 0) return;
  const ScratchScope scope(context);
  with_storage(layernorm_backward, args.x.dtype, [&](auto type) {
    using T = decltype(type);
    const RowShape shape = row_shape(layernorm_backward, dim, vec_size<T>, most_packs, most_warps);
    const RowBlocks blocks(rows, shape);
    const auto partial_of = [&](const Tensor& sum) {
      return sum ? context.scratch().take(DType::f32, {blocks.count, dim}) : Tensor();
    };
    const Tensor dw_partial = partial_of(args.dw), db_partial = partial_of(args.db);
    Backward s{rows,
               args.dx.row_stride,
               args.dy.row_stride,
               args.x.row_stride,
               static_cast<int>(dim),
               shape.warps,
               blocks.rows_a_block,
               1};
    const bool whole_rows = packs<T>(args.dx) && packs<T>(args.dy) && packs<T>(args.x) && begins_pack(args.w);
    with_shape<most_packs>(shape, whole_rows, [&](auto P, auto whole) {
      const auto kernel = args.accumulate ? backward_kernel<T, P, whole, true> : backward_kernel<T, P, whole, false>;
      const NormRing ring(device_limits(), args.accumulate ? 3 : 2, P, blocks.threads, backward_static_bytes);
      s.stages = ring.stages;
      allow_shared_memory(kernel, ring.bytes);
      kernel<<<blocks.count, blocks.threads, ring.bytes, cuda_stream(context)>>>(
          numbers<T>(args.dx), numbers<float>(dw_partial), numbers<float>(db_partial), numbers<const T>(args.dy),
          numbers<const T>(args.x), numbers<const float>(args.mean), numbers<const float>(args.rstd),
          numbers<const T>(args.w), s);
    });
    check_launch(layernorm_backward);
    add_column_sums(context, layernorm_backward, {{args.dw, dw_partial}, {args.db, db_partial}});
  });
}

[[maybe_unused]] const bool added = layernorm_forward.add({"rows", DeviceKind::cuda, forward}) &&
                                    layernorm_backward.add({"rows", DeviceKind::cuda, backward}) &&
                                    declare_adds_once(layernorm_backward, DeviceKind::cuda);
[[maybe_unused]] const bool planned =
    launch_plans().add("layernorm_backward.rows", [](const DeviceLimits& limits, LaunchPlans& out) {
      for_norm_shapes(most_packs, most_warps, [&](int packs, int threads) {
        const NormRing ring(limits, 3, packs, threads, backward_static_bytes);
        out.add(concat("backward_kernel of ", packs, " vectors, ", threads, " threads"),
                backward_kernel<__nv_bfloat16, 4, true, true>, threads, ring.bytes, backward_static_bytes);
      });
    });

}  // namespace
}  // namespace hone
