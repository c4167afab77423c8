// CPU bodies of grouped_gemm_quantized: the specification, and one gemm_quantized for each expert that has rows, which
// has the specification's bits.
#include "kernels/moe/grouped_gemm_quantized.h"

#include <algorithm>
#include <cmath>

#include "kernels/check_shape.h"
#include "kernels/moe/expert_bias.h"
#include "kernels/quant/gemm_quantized.h"
#include "kernels/quant/quant_format.h"

namespace hone {
namespace {

void check_rows(const GroupedGemmQuantized& args) {
  check_grouped_gemm(args);
  check_grouped_rows(grouped_gemm_quantized, args.offsets, args.y.dim(0));
}
void zero_tail(const GroupedGemmQuantized& args) {
  if (args.accumulate) return;
  const int64_t end = args.offsets.ptr<int32_t>()[args.offsets.dim(0) - 1];
  for (int64_t r = end; r < args.y.dim(0); ++r) std::fill_n(args.y.row<float>(r), args.y.dim(1), 0.0f);
}

void specification(Context&, const GroupedGemmQuantized& args) {
  check_rows(args);
  zero_tail(args);
  const int64_t N = args.y.dim(1), K = args.x.dim(1);
  const int32_t* const at = args.offsets.ptr<int32_t>();
  with_format(args.w.format, [&]<class Format>(Format) {
    for (int64_t e = 0; e + 1 < args.offsets.dim(0); ++e)
      for (int64_t r = at[e]; r < at[e + 1]; ++r)
        for (int64_t n = 0; n < N; ++n) {
          const uint8_t* const values = args.w.values.row<uint8_t>(e) + n * K;
          float total = 0;
          for (int64_t k = 0; k < K; ++k) total = std::fma(args.x.row<float>(r)[k], Format::decode(values[k]), total);
          total *= args.w.scales.row<float>(e)[n];
          float& y = args.y.row<float>(r)[n];
          y = args.accumulate ? total + y : total;
        }
  });
}

void experts(Context& context, const GroupedGemmQuantized& args) {
  check_rows(args);
  zero_tail(args);
  const int32_t* const at = args.offsets.ptr<int32_t>();
  for (int64_t e = 0; e + 1 < args.offsets.dim(0); ++e) {
    const int64_t rows = at[e + 1] - at[e];
    if (rows == 0) continue;
    const Tensor y = args.y.rows(at[e], rows);
    gemm_quantized(context, {.y = y,
                             .x = args.x.rows(at[e], rows),
                             .w = expert_matrix(args.w, e),
                             .residual = args.accumulate ? y : Tensor()});
  }
}

[[maybe_unused]] const bool added = grouped_gemm_quantized.add({"specification", DeviceKind::cpu, specification}) &&
                                    grouped_gemm_quantized.add({"experts", DeviceKind::cpu, experts, 10});

}  // namespace

void check_grouped_gemm(const GroupedGemmQuantized& args) {
  const OpBase& op = grouped_gemm_quantized;
  const int64_t P = args.x.dim(0), K = args.x.dim(1), N = args.y.dim(1), E = args.offsets.dim(0) - 1;
  check_shape(op, "offsets", args.offsets, {E + 1}, DType::i32);
  HONE_CHECK(E >= 1, op.name(), ": there are no experts");
  check_shape(op, "w.values", args.w.values, {E, N, K}, DType::u8);
  check_shape(op, "w.scales", args.w.scales, {E, N});
  HONE_CHECK(args.w.scales.contiguous(), op.name(), ": the rows of w.scales have gaps");
  check_shape(op, "x", args.x, {P, K}, args.x.dtype);
  check_shape(op, "y", args.y, {P, N}, args.y.dtype == DType::f32 ? DType::f32 : args.x.dtype);
}

void ExpertMatrices::multiply(Context& context, Tensor y, Tensor x, Tensor offsets) const {
  const bool accumulate = static_cast<bool>(bias);
  if (bias) expert_bias_forward(context, {.y = y, .bias = bias, .offsets = offsets});
  if (quantized)
    grouped_gemm_quantized(context, {.y = y, .x = x, .w = quantized, .offsets = offsets, .accumulate = accumulate});
  else
    grouped_gemm_forward(context, {.y = y, .x = x, .w = w, .offsets = offsets, .accumulate = accumulate});
}

}  // namespace hone
