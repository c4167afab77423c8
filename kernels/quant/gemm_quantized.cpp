// CPU specification of gemm_quantized.
#include "kernels/quant/gemm_quantized.h"

#include "core/base/parallel_for.h"
#include "kernels/gemm/gemm.h"
#include "kernels/quant/gemm_quantized_check.h"
#include "kernels/quant/quant_format.h"

namespace hone {
namespace {

void specification(Context&, Tensor y, Tensor x, QuantizedMatrix w, Tensor bias, Tensor residual) {
  check_gemm_quantized(y, x, w, bias, residual);
  const int64_t N = w.values.dim(0), K = w.values.dim(1);
  with_format(w.format, [&]<class Format>(Format) {
    parallel_for(y.dim(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m)
        for (int64_t n = 0; n < N; ++n) {
          const uint8_t* const values = w.values.row<uint8_t>(n);
          float total = 0;
          for (int64_t first = 0; first < K; first += gemm_chunk) {
            float sum = 0;
            for (int64_t k = first; k < std::min(K, first + gemm_chunk); ++k)
              sum = std::fma(x.row<float>(m)[k], Format::decode(values[k]), sum);
            total = first == 0 ? sum : total + sum;
          }
          total *= w.scales.ptr<float>()[n];
          if (bias) total += bias.ptr<float>()[n];
          if (residual) total += residual.row<float>(m)[n];
          y.row<float>(m)[n] = total;
        }
    });
  });
}

[[maybe_unused]] const bool added = gemm_quantized.add({"specification", DeviceKind::cpu, specification});

}  // namespace
}  // namespace hone
