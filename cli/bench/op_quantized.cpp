// Cases of GEMMs with weights of one byte per number: the layers of the benchmarked models at the row counts of
// rollouts. Bytes count the quantized weights.
#include "cli/bench/op_bench.h"
#include "cli/bench/op_inputs.h"
#include "kernels/quant/gemm_quantized.h"

namespace hone {
namespace {

std::vector<BenchCase> forward(Context& context) {
  std::vector<BenchCase> out;
  const bool cpu = context.kind() == DeviceKind::cpu;
  for (const int64_t rows : cpu ? std::vector<int64_t>{1, 64} : std::vector<int64_t>{1, 8, 64, 256, 2048})
    for (const BenchModel& m : bench_models) {
      if (cpu && m.width > 1024) continue;
      for (const auto& [N, K] :
           {std::pair{m.projected(), m.width}, {m.width, m.heads * m.head_dim}, {2 * m.mlp, m.width}, {m.width, m.mlp}})
        for (const QuantFormat format : {QuantFormat::int8, QuantFormat::fp8}) {
          const Tensor y = bench_numbers(context, {rows, N}), x = bench_numbers(context, {rows, K}),
                       w = bench_numbers(context, {N, K});
          const QuantizedMatrix quantized{context.scratch().take(DType::u8, {N, K}),
                                          context.scratch().take(DType::f32, {N}), format};
          quantize_rows(context, quantized, w);
          const double products = static_cast<double>(N) * static_cast<double>(K);
          const double bytes = products + static_cast<double>(size_of(y.dtype)) * static_cast<double>(rows * (N + K));
          out.push_back(bench_case(gemm_quantized, context,
                                   concat(rows, " x ", N, " x ", K, format == QuantFormat::int8 ? " int8" : " fp8"),
                                   2 * static_cast<double>(rows) * products, bytes, {.y = y, .x = x, .w = quantized}));
        }
    }
  return out;
}

[[maybe_unused]] const bool added = bench_cases().add("gemm_quantized", forward);

}  // namespace
}  // namespace hone
