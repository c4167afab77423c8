// CPU specification of quantize_rows.
#include "kernels/quant/quantize.h"

#include "core/base/parallel_for.h"
#include "kernels/quant/internal.h"
#include "kernels/quant/quant_format.h"

namespace hone {
namespace {

void run(Context&, QuantizedMatrix to, Tensor w) {
  const int64_t N = w.dim(0), K = w.dim(1);
  check_shape(quantize_rows, "w", w, {N, K});
  check_quantized(quantize_rows, "to", to, N, K);
  with_format(to.format, [&]<class Format>(Format) {
    parallel_for(N, 16, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        to.scales.ptr<float>()[n] = encode_row<Format>(to.values.row<uint8_t>(n), w.row<float>(n), K);
      }
    });
  });
}

[[maybe_unused]] const bool added = quantize_rows.add({"specification", DeviceKind::cpu, run});

}  // namespace
}  // namespace hone
