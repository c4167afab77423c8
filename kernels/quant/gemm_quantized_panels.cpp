// gemm_quantized on the CPU through gemm_forward: converts a panel of w's rows to f32, which is exact, so the sums have
// the specification's bits.
#include <array>

#include "core/base/parallel_for.h"
#include "kernels/gemm/gemm.h"
#include "kernels/quant/internal.h"
#include "kernels/quant/quant_format.h"

namespace hone {
namespace {

constexpr int64_t panel = 256;  // rows; small enough for gemm_forward to read the converted rows from a cache

template <class Format>
const std::array<float, 256>& all_numbers() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> out{};
    for (size_t i = 0; i < out.size(); ++i) out[i] = Format::decode(static_cast<uint8_t>(i));
    return out;
  }();
  return table;
}

void forward(Context& context, const GemmQuantized& args) {
  check_gemm_quantized(args);
  const int64_t M = args.x.dim(0), N = args.w.values.dim(0), K = args.w.values.dim(1);
  const ScratchScope scope(context);
  const Tensor numbers = context.scratch().take(DType::f32, {std::min(panel, N), K}),
               sums = context.scratch().take(DType::f32, {M, std::min(panel, N)});
  const float* table = nullptr;
  with_format(args.w.format, [&]<class Format>(Format) { table = all_numbers<Format>().data(); });
  for (int64_t first = 0; first < N; first += panel) {
    const int64_t count = std::min(panel, N - first);
    parallel_for(count, 16, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n)
        for (int64_t k = 0; k < K; ++k) numbers.row<float>(n)[k] = table[args.w.values.row<uint8_t>(first + n)[k]];
    });
    gemm_forward(context, {.y = sums.columns(0, count), .x = args.x, .w = numbers.rows(0, count)});
    const float* const scales = args.w.scales.ptr<float>() + first;
    parallel_for(M, 16, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m)
        for (int64_t n = 0; n < count; ++n) {
          float total = sums.row<float>(m)[n] * scales[n];
          if (args.bias) total += args.bias.ptr<float>()[first + n];
          if (args.residual) total += args.residual.row<float>(m)[first + n];
          args.y.row<float>(m)[first + n] = total;
        }
    });
  }
}

size_t scratch(const GemmQuantized& args) {
  return size_of(DType::f32) *
         static_cast<size_t>(std::min(panel, args.w.values.dim(0)) * (args.x.dim(0) + args.x.dim(1)));
}

[[maybe_unused]] const bool added = gemm_quantized.add({"panels", DeviceKind::cpu, forward, 10, nullptr, scratch});

}  // namespace
}  // namespace hone
