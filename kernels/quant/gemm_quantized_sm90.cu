// gemm_quantized for bf16 on Hopper. Its kernels have the bits of the "panels" body, so the number of rows may decide
// which one runs (tests/gpu/gemm_quantized_test.cpp checks it).
#include "kernels/quant/gemm_quantized_sm90.cuh"
#include "kernels/quant/internal.h"

namespace hone::quantized {
namespace {

int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

// A way to run a call and its expected time in microseconds.
struct QuantizedPlan {
  double time = 1e30;
  void (*run)(Context&, const Tensor& x, const QuantizedMatrix& w, const GemmEpilogue&, bool pairs,
              int splits) = nullptr;
  int splits = 1;
};

// Finds the best number of thread blocks per tile (splits). Limits: memory, L2, the intake and the wgmma rate of an SM,
// and the latency of a stage.
template <class Format, class T>
void consider(QuantizedPlan& best, int64_t M, int64_t N, int64_t K) {
  const int64_t tiles = pieces(N, T::rows) * pieces(M, T::tokens), chunks = pieces(K, gemm_cuda_chunk),
                processors = num_sms();
  const auto square = [](int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); };
  for (int64_t splits = 1; splits <= std::min<int64_t>(chunks, M <= 512 ? 16 : 1); ++splits) {
    const int64_t per_block = pieces(chunks, splits), blocks = tiles * splits;
    if (pieces(chunks, per_block) != splits) continue;
    const auto stages = static_cast<double>(std::min(pieces(K, T::depth), per_block * (gemm_cuda_chunk / T::depth)));
    const auto rounds = static_cast<double>(pieces(blocks, processors)), bytes = stages * T::stage_bytes;
    const double limits[] = {square(N, K) / 4.0e6, static_cast<double>(blocks) * bytes / 10e6, rounds * bytes / 95e3,
                             rounds * stages * (T::tokens * T::warpgroups / 500.0 + 0.06),
                             stages * 1.1 / T::stages + 0.5};
    const double join = splits > 1 ? 1 + square(1 + chunks - per_block, M) * static_cast<double>(N) * 8 / 5e6 : 0;
    const double time = 2 + *std::max_element(std::begin(limits), std::end(limits)) + join;
    if (time < best.time) best = {time, launch_tiles<Format, T>, static_cast<int>(splits)};
  }
}

template <class Format>
void run(Context& context, const Tensor& y, const Tensor& x, const QuantizedMatrix& w, const GemmEpilogue& epilogue) {
  const int64_t M = x.dim(0), N = w.values.dim(0), K = x.dim(1);
  QuantizedPlan plan;
  if (M <= 16) {
    consider<Format, Tile<1, 16, 8>>(plan, M, N, K);
    consider<Format, Tile<2, 16, 5>>(plan, M, N, K);
  } else if (M <= 32) {
    consider<Format, Tile<1, 32, 6>>(plan, M, N, K);
    consider<Format, Tile<2, 32, 4>>(plan, M, N, K);
  } else {
    consider<Format, Tile<1, 64, 4>>(plan, M, N, K);
    consider<Format, Tile<2, 64, 6>>(plan, M, N, K);
    if (M > 64) consider<Format, Tile<2, 128, 4>>(plan, M, N, K);
  }
  const bool pairs = y.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(y.data) % (2 * size_of(y.dtype)) == 0;
  plan.run(context, x, w, epilogue, pairs, plan.splits);
}

void forward(Context& context, const GemmQuantized& args) {
  check_gemm_quantized_cuda(args);
  if (args.y.size() == 0 || run_few(context, args)) return;
  with_pairs(args.w.format, [&]<class Format>(Format) {
    run<Format>(context, args.y, args.x, args.w, GemmEpilogue(args.y, args.bias, args.residual));
  });
  check_launch(gemm_quantized);
}

bool supports(const GemmQuantized& args) {
  return runs_hopper_bodies() && tma_compatible(args.x) && tma_compatible_u8(args.w.values) && args.x.dim(1) > 0;
}

[[maybe_unused]] const bool added = gemm_quantized.add({"sm90", DeviceKind::cuda, forward, 10, supports});

}  // namespace
}  // namespace hone::quantized
