// CPU specification of the GEMM ops. Every forward body has its bits: see kernels/gemm/gemm.h.
#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/gemm/internal.h"

namespace hone {
namespace {

void forward(Context&, const GemmForward& args) {
  check_gemm_forward(args);
  const int64_t N = args.w.dim(0), K = args.w.dim(1);
  parallel_for(args.y.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m)
      for (int64_t n = 0; n < N; ++n) {
        float total = 0;
        for (int64_t k = 0; k < K; ++k) total = std::fma(args.x.row<float>(m)[k], args.w.row<float>(n)[k], total);
        if (args.bias) total += args.bias.ptr<float>()[n];
        if (args.residual) total += args.residual.row<float>(m)[n];
        args.y.row<float>(m)[n] = total;
      }
  });
}

void backward_input(Context&, Tensor dx, Tensor dy, Tensor w) {
  check_gemm_backward_input(dx, dy, w);
  const int64_t N = w.dim(0), K = w.dim(1);
  parallel_for(dx.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      float* out = dx.row<float>(m);
      std::fill_n(out, K, 0.0f);
      for (int64_t n = 0; n < N; ++n)
        for (int64_t k = 0; k < K; ++k) out[k] += dy.row<float>(m)[n] * w.row<float>(n)[k];
    }
  });
}

void backward_weight(Context&, GradTarget dw, Tensor dbias, Tensor dy, Tensor x) {
  check_gemm_backward_weight(dw, dbias, dy, x);
  const int64_t M = x.dim(0), K = x.dim(1);
  parallel_for(dw.sum.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float* out = dw.sum.row<float>(n);
      if (!dw.accumulate) std::fill_n(out, K, 0.0f);
      for (int64_t m = 0; m < M; ++m) {
        const float gradient = dy.row<float>(m)[n];
        for (int64_t k = 0; k < K; ++k) out[k] += gradient * x.row<float>(m)[k];
        if (dbias) dbias.ptr<float>()[n] += gradient;
      }
    }
  });
}

[[maybe_unused]] const bool added = gemm_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    gemm_backward_input.add({"specification", DeviceKind::cpu, backward_input}) &&
                                    gemm_backward_weight.add({"specification", DeviceKind::cpu, backward_weight});

}  // namespace
}  // namespace hone
