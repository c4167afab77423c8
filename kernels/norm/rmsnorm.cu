// rmsnorm_forward and rmsnorm_backward on a GPU.
//
// Use       every dtype and alignment.
// Tile      one row per group of 1, 2, 4 or 8 warps (row_tile.cuh); a block has several groups and loops over rows.
// Roles     forward: 256 threads, up to 2 or 3 blocks per SM, grid-stride over rows. Backward: up to 512 threads, a
//           fixed range of rows per block (RowBlocks); all warps alike.
// Pipeline  forward: the next row is loaded into registers while a row is computed. Backward: 2 smem stages per group
//           (1 if 2 do not fit) of x, dy and, if accumulating, dx (cp.async); each thread reads its own copies only.
// Smem      forward: static 256 bytes. Backward: dynamic stages * (2 or 3) * P * threads * 16 bytes (P vectors per
//           thread), at most 192 KB, or 96 KB with 1 stage, reused for the sums of dw; static 256 bytes.
// Numerics  f32. A row's squares have the order of rmsnorm_row.cuh, which other kernels repeat. dw: column_sums.cuh.
// PDL       forward: triggers dependents and loads the weight before griddep_wait(). Backward: plain launch; triggers
//           dependents before its last sums; the kernel of column_sums.cuh waits.
// Limits    rows up to 12,288 bf16 or 6,144 f32 elements.
#include "kernels/adds_once.h"
#include "kernels/check_shape.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/pdl.cuh"
#include "kernels/norm/column_sums.cuh"
#include "kernels/norm/rmsnorm_row.cuh"

namespace hone {
namespace {

constexpr int most_packs = RmsNormRows::most_packs, forward_warps = 8;  // forward_warps: per block
template <int P>
constexpr int forward_blocks = P > 4 ? 2 : 3;  // per SM

struct Forward {
  int64_t rows, y_stride, x_stride;
  int dim, warps;
  float eps, offset;
};

// Each group of warps loops over rows; it loads the next row while it computes one.
template <class T, int P, bool whole>
__global__ void __launch_bounds__(32 * forward_warps, forward_blocks<P>)
    forward_kernel(T* y, float* rstd, const T* x, const T* w, Forward s) {
  constexpr int N = vec_size<T>;
  using Tile = RowTile<T, P>;
  __shared__ float shared[2][32];
  const RowThread at(s.warps);
  const int groups = static_cast<int>(blockDim.x) / at.threads;
  const int64_t step = int64_t{gridDim.x} * groups;
  int64_t row = int64_t{blockIdx.x} * groups + at.row;
  hopper::griddep_launch_dependents();
  Tile weight, next;
  weight.load(NormRow<const T, whole>{w, s.dim}, at);
  hopper::griddep_wait();  // x is written
  if (row >= s.rows) return;
  next.load(NormRow<const T, whole>{x + row * s.x_stride, s.dim}, at);
  for (int parity = 0; row < s.rows; row += step, parity ^= 1) {
    Tile in = next;
    if (row + step < s.rows) next.load(NormRow<const T, whole>{x + (row + step) * s.x_stride, s.dim}, at);
    // Sum of squares of the row.
    float part[2] = {};
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N];
      in.get(p, v);
      add_squares(part, v);
    }
    const float scale = rms_scale(row_sum(part[0] + part[1], at, shared[parity]), s.dim, s.eps);
    // Normalize, scale and store.
    in.forget_unpacked();
    weight.forget_unpacked();
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N], factor[N];
      in.get(p, v);
      weight.get(p, factor);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = rms_normed(v[j], scale, factor[j] + s.offset);
      NormRow<T, whole>{y + row * s.y_stride, s.dim}.store(Tile::column(p, at), v);
    }
    if (rstd && at.thread == 0) rstd[row] = scale;
  }
}

struct Backward {
  int64_t rows, dx_stride, dy_stride, x_stride;
  int dim, warps, rows_a_block, stages;
  float offset;
};
constexpr size_t backward_static_bytes = 256;

// Each block has a range of rows; each group of warps takes every groups-th of them, `stages` (1 or 2) in flight.
// partial [blocks, dim] receives the block's part of dw; it may be nullptr.
template <class T, int P, bool whole, bool accumulate>
__global__ void __launch_bounds__(32 * (P > 4 ? 12 : RowBlocks::most_warps))
    backward_kernel(T* dx, float* partial, const T* dy, const T* x, const float* rstd, const T* w, Backward s) {
  constexpr int N = vec_size<T>;
  extern __shared__ uint4 memory[];
  __shared__ float shared[2][32];
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
  const auto scale_of = [&](int64_t row) { return row < end ? rstd[row] : 0.0f; };
  float next_scale = scale_of(begin + at.row);
  float dw[P][N] = {};
  int parity = 0;
  int64_t row = begin + at.row;
  for (; row < end; row += groups, parity ^= 1) {
    const int stage = s.stages > 1 ? parity : 0;
    const float scale = next_scale;
    next_scale = scale_of(row + groups);
    // This thread's copies of the row have landed.
    if (s.stages > 1)
      cp_async_wait<1>();
    else
      cp_async_wait<0>();
    const Fetched in = tile(stage, of_x), grad = tile(stage, of_dy), before = tile(stage, of_dx);
    // Sum of dy * w * x of the row.
    float part[2] = {};
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float v[N], g[N], factor[N];
      in.get(p, v);
      grad.get(p, g);
      weight.get(p, factor);
#pragma unroll
      for (int j = 0; j < N; ++j) part[j % 2] = fmaf(g[j] * (factor[j] + s.offset), v[j], part[j % 2]);
    }
    const float pull = row_sum(part[0] + part[1], at, shared[parity]) * scale * scale / static_cast<float>(s.dim);
    // dx of the row; this thread's columns of dw.
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
        value[j] += scale * fmaf(-pull, v[j], g[j] * (factor[j] + s.offset));
        dw[p][j] = fmaf(g[j], v[j] * scale, dw[p][j]);
      }
      NormRow<T, whole>{dx + row * s.dx_stride, s.dim}.store(RowTile<T, P>::column(p, at), value);
    }
    weight.forget_unpacked();
    fetch(row + s.stages * groups, stage);
  }
  // Groups with one row less run the same barriers as the others: racecheck of compute-sanitizer reports false hazards
  // otherwise.
  if (row - at.row < end) row_sum(0, at, shared[parity]);
  // Sum the groups of the block.
  if (partial)
    add_groups<T, P, whole>(partial + int64_t{blockIdx.x} * s.dim, reinterpret_cast<float*>(memory), dw, s.dim, at);
}

void forward(Context& context, Tensor y, Tensor rstd, Tensor x, Tensor w, float eps, float offset) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(rmsnorm_forward, "x", x, {rows, dim}, x.dtype);
  check_shape(rmsnorm_forward, "y", y, {rows, dim}, x.dtype);
  check_shape(rmsnorm_forward, "w", w, {dim}, x.dtype);
  check_optional(rmsnorm_forward, "rstd", rstd, {rows});
  if (rows == 0 || dim == 0) return;
  with_storage(rmsnorm_forward, x.dtype, [&](auto type) {
    using T = decltype(type);
    const RowShape shape = RmsNormRows::shape(dim, vec_size<T>);
    const Forward s{rows, y.row_stride, x.row_stride, static_cast<int>(dim), shape.warps, eps, offset};
    const int groups = forward_warps / shape.warps;
    with_shape<most_packs>(shape, packs<T>(x) && packs<T>(y) && begins_pack(w), [&](auto P, auto whole) {
      const int64_t blocks = std::min<int64_t>((rows + groups - 1) / groups, int64_t{num_sms()} * forward_blocks<P>);
      launch_pdl(cuda_stream(context), forward_kernel<T, P, whole>, dim3(static_cast<unsigned>(blocks)),
                 32 * shape.warps * groups, 0, 1, numbers<T>(y), numbers<float>(rstd), numbers<const T>(x),
                 numbers<const T>(w), s);
    });
  });
  check_launch(rmsnorm_forward);
}

void backward(Context& context, const RmsnormBackward& args) {
  const int64_t rows = args.x.dim(0), dim = args.x.dim(1);
  check_shape(rmsnorm_backward, "x", args.x, {rows, dim}, args.x.dtype);
  check_shape(rmsnorm_backward, "dx", args.dx, {rows, dim}, args.x.dtype);
  check_shape(rmsnorm_backward, "dy", args.dy, {rows, dim}, args.x.dtype);
  check_shape(rmsnorm_backward, "w", args.w, {dim}, args.x.dtype);
  check_optional(rmsnorm_backward, "dw", args.dw, {dim});
  check_shape(rmsnorm_backward, "rstd", args.rstd, {rows});
  if (rows == 0 || dim == 0) return;
  const ScratchScope scope(context);
  with_storage(rmsnorm_backward, args.x.dtype, [&](auto type) {
    using T = decltype(type);
    const RowShape shape = RmsNormRows::shape(dim, vec_size<T>);
    const RowBlocks blocks(rows, shape);
    const Tensor partial = args.dw ? context.scratch().take(DType::f32, {blocks.count, dim}) : Tensor();
    Backward s{rows,
               args.dx.row_stride,
               args.dy.row_stride,
               args.x.row_stride,
               static_cast<int>(dim),
               shape.warps,
               blocks.rows_a_block,
               1,
               args.offset};
    const bool whole_rows = packs<T>(args.dx) && packs<T>(args.dy) && packs<T>(args.x) && begins_pack(args.w);
    with_shape<most_packs>(shape, whole_rows, [&](auto P, auto whole) {
      const auto kernel = args.accumulate ? backward_kernel<T, P, whole, true> : backward_kernel<T, P, whole, false>;
      const NormRing ring(device_limits(), args.accumulate ? 3 : 2, P, blocks.threads, backward_static_bytes);
      s.stages = ring.stages;
      allow_shared_memory(kernel, ring.bytes);
      kernel<<<blocks.count, blocks.threads, ring.bytes, cuda_stream(context)>>>(
          numbers<T>(args.dx), numbers<float>(partial), numbers<const T>(args.dy), numbers<const T>(args.x),
          numbers<const float>(args.rstd), numbers<const T>(args.w), s);
    });
    check_launch(rmsnorm_backward);
    add_column_sums(context, rmsnorm_backward, {{args.dw, partial}});
  });
}

[[maybe_unused]] const bool added = rmsnorm_forward.add({"rows", DeviceKind::cuda, forward}) &&
                                    rmsnorm_backward.add({"rows", DeviceKind::cuda, backward}) &&
                                    declare_adds_once(rmsnorm_backward, DeviceKind::cuda);
[[maybe_unused]] const bool planned =
    launch_plans().add("rmsnorm_backward.rows", [](const DeviceLimits& limits, LaunchPlans& out) {
      for_norm_shapes(most_packs, RmsNormRows::most_warps, [&](int packs, int threads) {
        const NormRing ring(limits, 3, packs, threads, backward_static_bytes);
        out.add(concat("backward_kernel of ", packs, " vectors, ", threads, " threads"),
                backward_kernel<__nv_bfloat16, 4, true, true>, threads, ring.bytes, backward_static_bytes);
      });
    });

}  // namespace
}  // namespace hone
