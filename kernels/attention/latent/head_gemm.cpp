// CPU bodies of the products per head: the specification, and a dense product for each head, which has its bits.
#include "kernels/attention/latent/head_gemm.h"

#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"
#include "kernels/gemm/gemm.h"

namespace hone {
namespace {

// The size of the sum and of the result of a product.
struct ProductSize {
  int64_t inputs, outputs;
};
ProductSize size_of_product(const HeadGemm& args) {
  const int64_t N = args.w.dim(1), K = args.w.dim(2);
  return args.transposed ? ProductSize{N, K} : ProductSize{K, N};
}

void specification(Context&, const HeadGemm& args) {
  check_head_gemm(args);
  const auto [inputs, outputs] = size_of_product(args);
  const int64_t K = args.w.dim(2);
  parallel_for(args.x.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < args.w.dim(0); ++h) {
        const float *x = args.x.row<float>(t) + h * args.x.dim(2), *w = args.w.row<float>(h);
        float* y = args.y.row<float>(t) + h * args.y.dim(2);
        for (int64_t n = 0; n < outputs; ++n) {
          float sum = 0;
          for (int64_t k = 0; k < inputs; ++k) sum = std::fma(x[k], args.transposed ? w[k * K + n] : w[n * K + k], sum);
          y[n] = sum;
        }
      }
  });
}

void heads(Context& context, const HeadGemm& args) {
  check_head_gemm(args);
  const auto [inputs, outputs] = size_of_product(args);
  for (int64_t h = 0; h < args.w.dim(0); ++h) {
    const ScratchScope scope(context);
    Tensor w = head_matrix(args.w, h);
    if (args.transposed) {
      const Tensor turned = context.scratch().take(DType::f32, {outputs, inputs});
      for (int64_t n = 0; n < outputs; ++n)
        for (int64_t k = 0; k < inputs; ++k) turned.row<float>(n)[k] = w.row<float>(k)[n];
      w = turned;
    }
    gemm_forward(context, {.y = head_columns(args.y, h, outputs), .x = head_columns(args.x, h, inputs), .w = w});
  }
}

void weight_specification(Context&, const HeadGemmWeight& args) {
  check_head_gemm(args);
  const int64_t N = args.dw.dim(1), K = args.dw.dim(2);
  parallel_for(args.dw.dim(0) * N, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t h = i / N, n = i % N;
      float* dw = args.dw.row<float>(h) + n * K;
      for (int64_t t = 0; t < args.a.dim(0); ++t) {
        const float a = args.a.row<float>(t)[h * args.a.dim(2) + n], *b = args.b.row<float>(t) + h * args.b.dim(2);
        for (int64_t k = 0; k < K; ++k) dw[k] += a * b[k];
      }
    }
  });
}

void weight_heads(Context& context, const HeadGemmWeight& args) {
  check_head_gemm(args);
  for (int64_t h = 0; h < args.dw.dim(0); ++h)
    gemm_backward_weight(context, head_matrix(args.dw, h), {}, head_columns(args.a, h, args.dw.dim(1)),
                         head_columns(args.b, h, args.dw.dim(2)));
}

[[maybe_unused]] const bool added = head_gemm.add({"specification", DeviceKind::cpu, specification}) &&
                                    head_gemm.add({"heads", DeviceKind::cpu, heads, 10}) &&
                                    head_gemm_weight.add({"specification", DeviceKind::cpu, weight_specification}) &&
                                    head_gemm_weight.add({"heads", DeviceKind::cpu, weight_heads, 10});

void check_heads(const OpBase& op, const char* name, const Tensor& x, int64_t tokens, int64_t num_heads, int64_t least,
                 DType dtype) {
  HONE_CHECK(x.rank == 3 && x.dim(2) >= least, op.name(), ": the heads of ", name, " have ", x.dim(-1),
             " columns; they must have at least ", least);
  check_shape(op, name, x, {tokens, num_heads, x.dim(2)}, dtype);
}

}  // namespace

void check_head_gemm(const HeadGemm& args) {
  const auto [inputs, outputs] = size_of_product(args);
  check_shape(head_gemm, "w", args.w, {args.w.dim(0), args.w.dim(1), args.w.dim(2)}, args.x.dtype);
  HONE_CHECK(inputs > 0 && outputs > 0, head_gemm.name(), ": w has an empty matrix");
  check_heads(head_gemm, "x", args.x, args.x.dim(0), args.w.dim(0), inputs, args.x.dtype);
  check_heads(head_gemm, "y", args.y, args.x.dim(0), args.w.dim(0), outputs, args.x.dtype);
}

void check_head_gemm(const HeadGemmWeight& args) {
  const int64_t H = args.dw.dim(0), N = args.dw.dim(1), K = args.dw.dim(2);
  check_shape(head_gemm_weight, "dw", args.dw, {H, N, K});
  check_heads(head_gemm_weight, "a", args.a, args.a.dim(0), H, N, args.a.dtype);
  check_heads(head_gemm_weight, "b", args.b, args.a.dim(0), H, K, args.a.dtype);
}

}  // namespace hone
