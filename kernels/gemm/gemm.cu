// gemm_forward for every shape, alignment and dtype. The other CUDA bodies are faster and have the same bits.
//
// Use       shapes, alignments and GPUs without a faster body.
// Tile      64 x 64 elements of y per block (tiles.cuh).
// Roles     tiles.cuh.
// Pipeline  tiles.cuh.
// Smem      tiles.cuh.
// Numerics  tiles.cuh.
// PDL       none.
// Limits    none.
#include "kernels/gemm/internal.h"
#include "kernels/gemm/tiles.cuh"

namespace hone {
namespace {

template <class T>
__global__ void __launch_bounds__(gemm_tile_threads<T>) tiles_kernel(GemmOperands<T> of, GemmEpilogue epilogue) {
  compute_gemm_tile(of, int64_t{blockIdx.x} * gemm_tile, int64_t{blockIdx.y} * gemm_tile, epilogue);
}

void forward(Context& context, const GemmForward& args) {
  check_gemm_forward_cuda(args);
  if (args.y.size() == 0 || run_gemm_forward_fast(context, args)) return;
  with_storage(gemm_forward, args.x.dtype, [&](auto type) {
    using T = decltype(type);
    GemmOperands<T> of{};
    of.x = numbers<const T>(args.x);
    of.w = numbers<const T>(args.w);
    of.M = args.x.dim(0);
    of.N = args.w.dim(0);
    of.K = args.w.dim(1);
    of.x_stride = args.x.row_stride;
    of.w_stride = args.w.row_stride;
    of.x_packed = gemm_rows_aligned<T>(args.x);
    of.w_packed = gemm_rows_aligned<T>(args.w);
    const dim3 grid(static_cast<unsigned>((of.M + gemm_tile - 1) / gemm_tile),
                    static_cast<unsigned>((of.N + gemm_tile - 1) / gemm_tile));
    tiles_kernel<T>
        <<<grid, gemm_tile_threads<T>, 0, cuda_stream(context)>>>(of, GemmEpilogue(args.y, args.bias, args.residual));
  });
  check_launch(gemm_forward);
}

[[maybe_unused]] const bool added = gemm_forward.add({"tiles", DeviceKind::cuda, forward});

}  // namespace
}  // namespace hone
