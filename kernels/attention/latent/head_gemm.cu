// CUDA bodies of the products per head. One grid computes the products of all heads.
//
// Use       "mma": bf16, 16-byte aligned rows. "tiles": every dtype and alignment.
// Tile      mma: 128 x 128 of a head's result (mma_product). tiles: 64 x 64 (fma_product).
// Roles     as in kernels/gemm/product_tiles.cuh.
// Pipeline  as there.
// Smem      mma: dynamic, 64 KB. tiles: static, 8.5 KB.
// Numerics  f32 accumulator, ascending along the sum. weight: each element gets one addition (adds_once.h).
// PDL       none.
// Limits    mma: rows of all operands 16-byte aligned, N, K and heads multiples of 8 elements; fewer than 2^31 tokens.
#include "kernels/adds_once.h"
#include "kernels/attention/latent/head_gemm.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/gemm/product_tiles.cuh"

namespace hone {
namespace {

constexpr int threads = product_threads, side = mma_product_side, small_side = fma_product_side;

// The product of the first head, and how to go on from a head to the next.
template <class T>
struct HeadProduct {
  Product<T> of;
  int64_t a_head, b_head, out_head;
  int n_tiles;
};

// The product of this block's head, and the first element of its tile.
template <int size, class T>
__device__ inline void find_tile(HeadProduct<T>& heads, int& row, int& column) {
  row = static_cast<int>(blockIdx.x) / heads.n_tiles * size;
  column = static_cast<int>(blockIdx.x) % heads.n_tiles * size;
  heads.of.skip(blockIdx.y * heads.a_head, blockIdx.y * heads.b_head, blockIdx.y * heads.out_head);
}

template <ProductKind kind>
__global__ void __launch_bounds__(threads, 2) mma_kernel(HeadProduct<__nv_bfloat16> heads) {
  extern __shared__ __align__(128) char shared[];
  int row, column;
  find_tile<side>(heads, row, column);
  mma_product<kind>(shared, heads.of, row, column);
}

template <class T, ProductKind kind>
__global__ void __launch_bounds__(threads) tiles_kernel(HeadProduct<T> heads) {
  int row, column;
  find_tile<small_side>(heads, row, column);
  fma_product<kind>(heads.of, row, column);
}

template <class T>
HeadProduct<T> product_of(const HeadGemm& args) {
  HeadProduct<T> heads{};
  Product<T>& of = heads.of;
  of.a = numbers<const T>(args.x);
  of.b = numbers<const T>(args.w);
  of.out = args.y.data;
  of.a_stride = args.x.row_stride;
  of.b_stride = args.w.dim(2);
  of.out_stride = args.y.row_stride;
  heads.a_head = args.x.dim(2);
  heads.b_head = args.w.row_stride;
  heads.out_head = args.y.dim(2);
  of.M = static_cast<int>(args.x.dim(0));
  of.N = static_cast<int>(args.transposed ? args.w.dim(2) : args.w.dim(1));
  of.K = static_cast<int>(args.transposed ? args.w.dim(1) : args.w.dim(2));
  of.out_bf16 = args.y.dtype == DType::bf16;
  return heads;
}

template <class T>
HeadProduct<T> product_of(const HeadGemmWeight& args) {
  HeadProduct<T> heads{};
  Product<T>& of = heads.of;
  of.a = numbers<const T>(args.a);
  of.b = numbers<const T>(args.b);
  of.out = args.dw.data;
  of.a_stride = args.a.row_stride;
  of.b_stride = args.b.row_stride;
  of.out_stride = args.dw.dim(2);
  heads.a_head = args.a.dim(2);
  heads.b_head = args.b.dim(2);
  heads.out_head = args.dw.row_stride;
  of.M = static_cast<int>(args.dw.dim(1));
  of.N = static_cast<int>(args.dw.dim(2));
  of.K = static_cast<int>(args.a.dim(0));
  of.add = true;
  return heads;
}

template <class Kernel, class T>
void launch(Context& context, const OpBase& op, Kernel* kernel, HeadProduct<T> heads, int64_t count, int size,
            size_t bytes) {
  heads.n_tiles = (heads.of.N + size - 1) / size;
  const dim3 grid(static_cast<unsigned>((heads.of.M + size - 1) / size * heads.n_tiles), static_cast<unsigned>(count));
  kernel<<<grid, threads, bytes, cuda_stream(context)>>>(heads);
  check_launch(op);
}

void mma_forward(Context& context, const HeadGemm& args) {
  check_head_gemm(args);
  if (args.x.dim(0) == 0) return;
  const auto run = [&](auto* kernel) {
    allow_shared_memory(kernel, mma_product_bytes);
    launch(context, head_gemm, kernel, product_of<__nv_bfloat16>(args), args.w.dim(0), side, mma_product_bytes);
  };
  if (args.transposed)
    run(mma_kernel<ProductKind::by_columns>);
  else
    run(mma_kernel<ProductKind::by_rows>);
}

void forward(Context& context, const HeadGemm& args) {
  check_head_gemm(args);
  if (args.x.dim(0) == 0) return;
  with_storage(head_gemm, args.x.dtype, [&](auto type) {
    using T = decltype(type);
    const auto run = [&](auto* kernel) {
      launch(context, head_gemm, kernel, product_of<T>(args), args.w.dim(0), small_side, 0);
    };
    if (args.transposed)
      run(tiles_kernel<T, ProductKind::by_columns>);
    else
      run(tiles_kernel<T, ProductKind::by_rows>);
  });
}

void mma_weight(Context& context, const HeadGemmWeight& args) {
  check_head_gemm(args);
  if (args.a.dim(0) == 0) return;
  allow_shared_memory(mma_kernel<ProductKind::weight>, mma_product_bytes);
  launch(context, head_gemm_weight, mma_kernel<ProductKind::weight>, product_of<__nv_bfloat16>(args), args.dw.dim(0),
         side, mma_product_bytes);
}

void weight(Context& context, const HeadGemmWeight& args) {
  check_head_gemm(args);
  if (args.a.dim(0) == 0) return;
  with_storage(head_gemm_weight, args.a.dtype, [&](auto type) {
    using T = decltype(type);
    launch(context, head_gemm_weight, tiles_kernel<T, ProductKind::weight>, product_of<T>(args), args.dw.dim(0),
           small_side, 0);
  });
}

bool in_vectors(const Tensor& x) {
  return x.dtype == DType::bf16 && x.row_stride % 8 == 0 && x.dim(2) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}
bool supports(const HeadGemm& args) { return in_vectors(args.x) && in_vectors(args.w) && args.w.dim(1) % 8 == 0; }
bool supports_weight(const HeadGemmWeight& args) {
  return in_vectors(args.a) && in_vectors(args.b) && args.dw.dim(1) % 8 == 0 && args.dw.dim(2) % 8 == 0;
}

[[maybe_unused]] const bool added = head_gemm.add({"mma", DeviceKind::cuda, mma_forward, 5, supports}) &&
                                    head_gemm.add({"tiles", DeviceKind::cuda, forward}) &&
                                    head_gemm_weight.add({"mma", DeviceKind::cuda, mma_weight, 5, supports_weight}) &&
                                    head_gemm_weight.add({"tiles", DeviceKind::cuda, weight}) &&
                                    declare_adds_once(head_gemm_weight, DeviceKind::cuda);

void plan_launches(const DeviceLimits&, LaunchPlans& out) {
  out.add("mma_kernel by rows", mma_kernel<ProductKind::by_rows>, threads, mma_product_bytes);
  out.add("mma_kernel by columns", mma_kernel<ProductKind::by_columns>, threads, mma_product_bytes);
  out.add("mma_kernel weight", mma_kernel<ProductKind::weight>, threads, mma_product_bytes);
}
[[maybe_unused]] const bool planned = launch_plans().add("head_gemm.mma", plan_launches);

}  // namespace
}  // namespace hone
