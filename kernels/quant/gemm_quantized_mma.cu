// gemm_quantized for bf16 on compute capability 8.0 and later. With at most 8 rows it reads w once; with more it is the
// "panels" body, whose bits it has (tests/gpu/gemm_quantized_test.cpp checks it).
#include "kernels/quant/gemm_quantized_small_m.cuh"
#include "kernels/quant/internal.h"

namespace hone::quantized {
namespace {

void forward(Context& context, const GemmQuantized& args) {
  if (!takes_few(args.x.dim(0), args.x.dim(1))) return gemm_quantized_panels(context, args);
  check_gemm_quantized_cuda(args);
  if (args.y.size() == 0) return;
  with_pairs(args.w.format, [&]<class Format>(Format) { run_few<Format>(context, args); });
  check_launch(gemm_quantized);
}

bool supports(const GemmQuantized& args) {
  const Tensor &x = args.x, &w = args.w.values;
  const auto aligned = [](const Tensor& t, int64_t size) {
    return t.row_stride % size == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
  };
  return x.dtype == DType::bf16 && aligned(x, 8) && aligned(w, 16) && x.dim(1) > 0;
}

[[maybe_unused]] const bool added =
    gemm_quantized.add({"mma", DeviceKind::cuda, forward, 5, supports, gemm_quantized_panels_scratch});

}  // namespace
}  // namespace hone::quantized
