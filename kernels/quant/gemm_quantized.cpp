// CPU specification of gemm_quantized.
#include "kernels/quant/gemm_quantized.h"

#include "core/base/parallel_for.h"
#include "kernels/gemm/gemm.h"
#include "kernels/quant/internal.h"
#include "kernels/quant/quant_format.h"

namespace hone {
namespace {

void specification(Context&, const GemmQuantized& args) {
  check_gemm_quantized(args);
  const int64_t N = args.w.values.dim(0), K = args.w.values.dim(1);
  with_format(args.w.format, [&]<class Format>(Format) {
    parallel_for(args.y.dim(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m)
        for (int64_t n = 0; n < N; ++n) {
          const uint8_t* const values = args.w.values.row<uint8_t>(n);
          float total = 0;
          for (int64_t k = 0; k < K; ++k) total = std::fma(args.x.row<float>(m)[k], Format::decode(values[k]), total);
          total *= args.w.scales.ptr<float>()[n];
          if (args.bias) total += args.bias.ptr<float>()[n];
          if (args.residual) total += args.residual.row<float>(m)[n];
          args.y.row<float>(m)[n] = total;
        }
    });
  });
}

[[maybe_unused]] const bool added = gemm_quantized.add({"specification", DeviceKind::cpu, specification});

}  // namespace
}  // namespace hone
