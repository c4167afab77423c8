// CPU specification of the grouped GEMMs.
#include "kernels/moe/grouped_gemm.h"

#include <algorithm>
#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"
#include "kernels/gemm/gemm.h"

namespace hone {
namespace {

// Calls visit(e, r) for each row of an expert, in order.
template <class Visit>
void each_row(const Tensor& offsets, Visit visit) {
  const int32_t* at = offsets.ptr<int32_t>();
  for (int64_t e = 0; e + 1 < offsets.dim(0); ++e)
    for (int64_t r = at[e]; r < at[e + 1]; ++r) visit(e, r);
}
void zero_tail(const Tensor& x, const Tensor& offsets) {
  const int64_t end = offsets.ptr<int32_t>()[offsets.dim(0) - 1];
  for (int64_t r = end; r < x.dim(0); ++r) std::fill_n(x.row<float>(r), x.dim(1), 0.0f);
}

void forward(Context&, const GroupedGemmForward& args) {
  check_grouped_gemm(args);
  check_grouped_rows(grouped_gemm_forward, args.offsets, args.y.dim(0));
  const int64_t N = args.y.dim(1), K = args.x.dim(1);
  if (!args.accumulate) zero_tail(args.y, args.offsets);
  each_row(args.offsets, [&](int64_t e, int64_t r) {
    for (int64_t n = 0; n < N; ++n) {
      const float *x = args.x.row<float>(r), *w = args.w.row<float>(e) + n * K;
      float total = 0;
      for (int64_t k = 0; k < K; ++k) total = std::fma(x[k], w[k], total);
      float& y = args.y.row<float>(r)[n];
      y = args.accumulate ? total + y : total;
    }
  });
}

void backward_input(Context&, const GroupedGemmBackwardInput& args) {
  check_grouped_gemm(args);
  check_grouped_rows(grouped_gemm_backward_input, args.offsets, args.dy.dim(0));
  const int64_t N = args.dy.dim(1), K = args.dx.dim(1);
  zero_tail(args.dx, args.offsets);
  each_row(args.offsets, [&](int64_t e, int64_t r) {
    float* out = args.dx.row<float>(r);
    std::fill_n(out, K, 0.0f);
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < K; ++k) out[k] += args.dy.row<float>(r)[n] * args.w.row<float>(e)[n * K + k];
  });
}

void backward_weight(Context& context, const GroupedGemmBackwardWeight& args) {
  check_grouped_gemm(args);
  check_grouped_rows(grouped_gemm_backward_weight, args.offsets, args.dy.dim(0));
  const int64_t N = args.dy.dim(1), K = args.x.dim(1);
  args.dw.add_nothing(context);
  each_row(args.offsets, [&](int64_t e, int64_t r) {
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < K; ++k)
        args.dw.sum.row<float>(e)[n * K + k] += args.dy.row<float>(r)[n] * args.x.row<float>(r)[k];
  });
}

[[maybe_unused]] const bool added =
    grouped_gemm_forward.add({"specification", DeviceKind::cpu, forward}) &&
    grouped_gemm_backward_input.add({"specification", DeviceKind::cpu, backward_input}) &&
    grouped_gemm_backward_weight.add({"specification", DeviceKind::cpu, backward_weight});

void check_matrices(const OpBase& op, const char* name, const Tensor& w, DType dtype, const Tensor& offsets, int64_t N,
                    int64_t K) {
  check_shape(op, "offsets", offsets, {offsets.dim(0)}, DType::i32);
  HONE_CHECK(offsets.dim(0) >= 2, op.name(), ": there are no experts");
  check_shape(op, name, w, {offsets.dim(0) - 1, N, K}, dtype);
}

}  // namespace

void check_grouped_gemm(const GroupedGemmForward& args) {
  const int64_t P = args.x.dim(0), K = args.x.dim(1), N = args.y.dim(1);
  check_matrices(grouped_gemm_forward, "w", args.w, args.x.dtype, args.offsets, N, K);
  check_shape(grouped_gemm_forward, "x", args.x, {P, K}, args.x.dtype);
  check_shape(grouped_gemm_forward, "y", args.y, {P, N}, args.y.dtype == DType::f32 ? DType::f32 : args.x.dtype);
}
void check_grouped_gemm(const GroupedGemmBackwardInput& args) {
  const int64_t P = args.dy.dim(0), N = args.dy.dim(1), K = args.dx.dim(1);
  check_matrices(grouped_gemm_backward_input, "w", args.w, args.dy.dtype, args.offsets, N, K);
  check_shape(grouped_gemm_backward_input, "dy", args.dy, {P, N}, args.dy.dtype);
  check_shape(grouped_gemm_backward_input, "dx", args.dx, {P, K},
              args.dx.dtype == DType::f32 ? DType::f32 : args.dy.dtype);
}
void check_grouped_gemm(const GroupedGemmBackwardWeight& args) {
  const int64_t P = args.dy.dim(0), N = args.dy.dim(1), K = args.x.dim(1);
  check_matrices(grouped_gemm_backward_weight, "dw", args.dw.sum, DType::f32, args.offsets, N, K);
  check_shape(grouped_gemm_backward_weight, "dy", args.dy, {P, N}, args.dy.dtype);
  check_shape(grouped_gemm_backward_weight, "x", args.x, {P, K}, args.dy.dtype);
}

void check_grouped_rows(const OpBase& op, const Tensor& offsets, int64_t rows) {
  const int64_t last = offsets.ptr<int32_t>()[offsets.dim(0) - 1];
  HONE_CHECK(last <= rows, op.name(), ": offsets end at ", last, " of ", rows, " rows");
  check_offsets(op, offsets, last);
}

}  // namespace hone
