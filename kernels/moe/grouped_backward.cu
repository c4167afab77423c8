// CUDA bodies of grouped_gemm_backward_input and grouped_gemm_backward_weight: products whose second operand has the
// reduction dimension as its rows.
//
// Use       "mma": bf16, 16-byte aligned rows. "tiles": every dtype and alignment.
// Tile      mma: 128 x 128 of the output (mma_product). tiles: 64 x 64 (fma_product). input: rows of an expert by
//           columns of w. weight: rows of an expert's matrix by its columns; the sum runs over the expert's rows.
// Roles     as in kernels/gemm/product_tiles.cuh.
// Pipeline  as there.
// Smem      mma: dynamic, 64 KB. tiles: static, 8.5 KB.
// Numerics  f32 accumulator, ascending along the sum. weight: each element gets one addition (adds_once.h), to 0 if the
//           gradient is written.
// PDL       none.
// Limits    mma: rows of all operands 16-byte aligned, their lengths multiples of 8; fewer than 2^31 rows and tiles.
#include "kernels/adds_once.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/gemm/product_tiles.cuh"
#include "kernels/moe/group_tiles.cuh"
#include "kernels/moe/grouped_gemm.h"

namespace hone {
namespace {

constexpr int threads = product_threads, side = mma_product_side, small_side = fma_product_side;

struct GroupShape {
  const int32_t* offsets;
  int num_experts, rows, n_tiles;
  int64_t matrix;  // elements from an expert's matrix of w or dw to the next one's
};

// The product of a thread block and the first element of its tile. False: nothing to compute.
template <int size, ProductKind kind, class T>
__device__ bool find_product(Product<T>& of, const GroupShape& groups, int& row, int& column) {
  const int number = static_cast<int>(blockIdx.x) / groups.n_tiles;
  column = static_cast<int>(blockIdx.x) % groups.n_tiles * size;
  if constexpr (kind == ProductKind::weight) {
    const int e = static_cast<int>(blockIdx.y), begin = groups.offsets[e];
    row = number * size;
    of.K = groups.offsets[e + 1] - begin;
    of.skip(begin * of.a_stride, begin * of.b_stride, e * groups.matrix);
    return of.K > 0 || !of.add;  // the gradient of an expert without rows is 0
  } else {
    const GroupTile tile = find_group_tile(groups.offsets, groups.num_experts, groups.rows, size, number);
    if (tile.expert < 0) return false;
    row = tile.row;
    of.M = tile.end;
    if (tile.expert < groups.num_experts) {
      of.skip(0, tile.expert * groups.matrix, 0);
      return true;
    }
    if (of.out_bf16)
      store_zeros(static_cast<__nv_bfloat16*>(of.out), of.out_stride, row, of.M, size, column, of.N, size);
    else
      store_zeros(static_cast<float*>(of.out), of.out_stride, row, of.M, size, column, of.N, size);
    return false;
  }
}

template <ProductKind kind>
__global__ void __launch_bounds__(threads, 2) mma_kernel(Product<__nv_bfloat16> of, GroupShape groups) {
  extern __shared__ __align__(128) char shared[];
  int row, column;
  if (find_product<side, kind>(of, groups, row, column)) mma_product<kind>(shared, of, row, column);
}

template <class T, ProductKind kind>
__global__ void __launch_bounds__(threads) tiles_kernel(Product<T> of, GroupShape groups) {
  int row, column;
  if (find_product<small_side, kind>(of, groups, row, column)) fma_product<kind>(of, row, column);
}

GroupShape groups_of(const Tensor& offsets, int64_t rows, int64_t columns, int64_t width, int64_t matrix) {
  GroupShape groups{};
  groups.offsets = numbers<const int32_t>(offsets);
  groups.num_experts = static_cast<int>(offsets.dim(0) - 1);
  groups.rows = static_cast<int>(rows);
  groups.n_tiles = static_cast<int>(group_pieces(columns, width));
  groups.matrix = matrix;
  return groups;
}

template <class T>
Product<T> input_product(const GroupedGemmBackwardInput& args) {
  Product<T> of{};
  of.a = numbers<const T>(args.dy);
  of.b = numbers<const T>(args.w);
  of.out = args.dx.data;
  of.a_stride = args.dy.row_stride;
  of.b_stride = args.w.dim(2);
  of.out_stride = args.dx.row_stride;
  of.N = static_cast<int>(args.dx.dim(1));
  of.K = static_cast<int>(args.dy.dim(1));
  of.out_bf16 = args.dx.dtype == DType::bf16;
  return of;
}

template <class T>
Product<T> weight_product(const GroupedGemmBackwardWeight& args) {
  Product<T> of{};
  of.a = numbers<const T>(args.dy);
  of.b = numbers<const T>(args.x);
  of.out = args.dw.sum.data;
  of.a_stride = args.dy.row_stride;
  of.b_stride = args.x.row_stride;
  of.out_stride = args.dw.sum.dim(2);
  of.M = static_cast<int>(args.dy.dim(1));
  of.N = static_cast<int>(args.x.dim(1));
  of.add = args.dw.accumulate;
  return of;
}

template <class Kernel, class T>
void launch_input(Context& context, const GroupedGemmBackwardInput& args, Kernel* kernel, const Product<T>& of,
                  int64_t size, size_t bytes) {
  const GroupShape groups = groups_of(args.offsets, args.dx.dim(0), args.dx.dim(1), size, args.w.row_stride);
  const int64_t blocks = max_group_tiles(args.dx.dim(0), groups.num_experts, size) * groups.n_tiles;
  kernel<<<static_cast<unsigned>(blocks), threads, bytes, cuda_stream(context)>>>(of, groups);
  check_launch(grouped_gemm_backward_input);
}

template <class Kernel, class T>
void launch_weight(Context& context, const GroupedGemmBackwardWeight& args, Kernel* kernel, const Product<T>& of,
                   int64_t size, size_t bytes) {
  const GroupShape groups = groups_of(args.offsets, args.x.dim(0), args.x.dim(1), size, args.dw.sum.row_stride);
  const dim3 grid(static_cast<unsigned>(group_pieces(args.dy.dim(1), size) * groups.n_tiles),
                  static_cast<unsigned>(groups.num_experts));
  kernel<<<grid, threads, bytes, cuda_stream(context)>>>(of, groups);
  check_launch(grouped_gemm_backward_weight);
}

void mma_input(Context& context, const GroupedGemmBackwardInput& args) {
  check_grouped_gemm(args);
  if (args.dx.size() == 0) return;
  allow_shared_memory(mma_kernel<ProductKind::by_columns>, mma_product_bytes);
  launch_input(context, args, mma_kernel<ProductKind::by_columns>, input_product<__nv_bfloat16>(args), side,
               mma_product_bytes);
}
void input(Context& context, const GroupedGemmBackwardInput& args) {
  check_grouped_gemm(args);
  if (args.dx.size() == 0) return;
  with_storage(grouped_gemm_backward_input, args.dy.dtype, [&](auto type) {
    using T = decltype(type);
    launch_input(context, args, tiles_kernel<T, ProductKind::by_columns>, input_product<T>(args), small_side, 0);
  });
}

void mma_weight(Context& context, const GroupedGemmBackwardWeight& args) {
  check_grouped_gemm(args);
  if (args.dw.sum.size() == 0) return;
  if (args.x.dim(0) == 0) return args.dw.add_nothing(context);
  allow_shared_memory(mma_kernel<ProductKind::weight>, mma_product_bytes);
  launch_weight(context, args, mma_kernel<ProductKind::weight>, weight_product<__nv_bfloat16>(args), side,
                mma_product_bytes);
}
void weight(Context& context, const GroupedGemmBackwardWeight& args) {
  check_grouped_gemm(args);
  if (args.dw.sum.size() == 0) return;
  if (args.x.dim(0) == 0) return args.dw.add_nothing(context);
  with_storage(grouped_gemm_backward_weight, args.dy.dtype, [&](auto type) {
    using T = decltype(type);
    launch_weight(context, args, tiles_kernel<T, ProductKind::weight>, weight_product<T>(args), small_side, 0);
  });
}

bool in_vectors(const Tensor& x) {
  return x.dtype == DType::bf16 && x.row_stride % 8 == 0 && x.dim(-1) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}
bool supports_input(const GroupedGemmBackwardInput& args) { return in_vectors(args.dy) && in_vectors(args.w); }
bool supports_weight(const GroupedGemmBackwardWeight& args) { return in_vectors(args.dy) && in_vectors(args.x); }

[[maybe_unused]] const bool added =
    grouped_gemm_backward_input.add({"mma", DeviceKind::cuda, mma_input, 5, supports_input}) &&
    grouped_gemm_backward_input.add({"tiles", DeviceKind::cuda, input}) &&
    grouped_gemm_backward_weight.add({"mma", DeviceKind::cuda, mma_weight, 5, supports_weight}) &&
    grouped_gemm_backward_weight.add({"tiles", DeviceKind::cuda, weight}) &&
    declare_adds_once(grouped_gemm_backward_weight, DeviceKind::cuda);

void plan_launches(const DeviceLimits&, LaunchPlans& out) {
  out.add("mma_kernel input", mma_kernel<ProductKind::by_columns>, threads, mma_product_bytes);
  out.add("mma_kernel weight", mma_kernel<ProductKind::weight>, threads, mma_product_bytes);
}
[[maybe_unused]] const bool planned = launch_plans().add("grouped_gemm_backward.mma", plan_launches);

}  // namespace
}  // namespace hone
