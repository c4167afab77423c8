// gemm_forward on Hopper. Every kernel here has the bits of the "tiles" body, so that which one runs, and with which tiles, may be chosen by the
// number of rows (tests/gpu/gemm_test.cpp holds them to it).
#include "kernels/gemm_store.cuh"

namespace hone {
namespace {

bool supports(const Tensor&, const Tensor& x, const Tensor& w, const Tensor&, const Tensor&) { return maps(x) && maps(w) && w.dim(1) > 0; }

template <class Tile>
void run_tile(Context& context, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& residual) {
  if (maps(y) && (!residual || maps(residual))) {
    const GemmStoreBox store{map_of(y, 64),
                             map_of(residual ? residual : y, 64),
                             bias ? bias.data : nullptr,
                             static_cast<int>(w.dim(0)),
                             bias.dtype == DType::bf16,
                             static_cast<bool>(residual)};
    launch_gemm_sm90<Tile>(cuda_stream(context), x, w, store);
  } else {
    const bool pairs = y.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(y.data) % (2 * size_of(y.dtype)) == 0;
    with_storage(gemm_forward, y.dtype, [&](auto type) {
      launch_gemm_sm90<Tile>(cuda_stream(context), x, w, GemmStore<decltype(type)>{GemmEpilogue(y, bias, residual), x.dim(0), w.dim(0), pairs});
    });
  }
}

// Time of a launch with these tiles in products' columns: rounds of tiles over the multiprocessors.
int64_t rounds(int64_t M, int64_t N, int64_t columns) {
  const int64_t tiles = (M + 127) / 128 * ((N + columns - 1) / columns);
  return (tiles + num_multiprocessors() - 1) / num_multiprocessors() * columns;
}

void forward(Context& context, Tensor y, Tensor x, Tensor w, Tensor bias, Tensor residual) {
  check_gemm_forward_cuda(y, x, w, bias, residual);
  if (y.size() == 0 || run_gemm_forward_fast(context, y, x, w, bias, residual)) return;
  const int64_t M = x.dim(0), N = w.dim(0);
  if (rounds(M, N, 128) * 105 < rounds(M, N, 192) * 100)  // the narrow tile's products are slower by some 5%
    run_tile<GemmTile<128, 6, 1>>(context, y, x, w, bias, residual);
  else
    run_tile<GemmTile<192, 4, 1>>(context, y, x, w, bias, residual);
  check_launch(gemm_forward);
}

[[maybe_unused]] const bool added = gemm_forward.add({"sm90", DeviceKind::cuda, forward, 10, supports});

}  // namespace
}  // namespace hone
