#include "kernels/quant/gemm_quantized.h"

#include "kernels/gemm/gemm.h"
#include "tests/gpu/quantized_on_gpu.h"

namespace hone::test {
namespace {

struct Shape {
  int64_t M, N, K;
};
constexpr Shape shapes[] = {{1, 1, 1},        {0, 5, 7},       {3, 5, 7},       {1, 33, 513},     {17, 31, 65},
                            {40, 70, 144},    {65, 97, 1104},  {5, 3, 512},     {130, 48, 64},    {2, 0, 16},
                            {129, 257, 1040}, {300, 136, 528}, {8, 512, 2064},  {1, 128, 1024},   {7, 200, 4864},
                            {33, 1000, 96},   {64, 72, 896},   {100, 192, 16},  {256, 384, 1536}, {2, 40, 14336},
                            {8, 24, 8960},    {12, 40, 8960},  {200, 4200, 256}};

// Calls test(run) for each CUDA body. run(arguments...) runs it, or returns false if it does not support the arguments.
template <class Test>
void each_gpu_body(Test test) {
  for (size_t i = 0; i < gemm_quantized.bodies().size(); ++i) {
    if (gemm_quantized.bodies()[i].device != DeviceKind::cuda) continue;
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, gemm_quantized.bodies()[i].name);
    test([&](Tensor y, Tensor x, QuantizedMatrix w, Tensor bias, Tensor residual) {
      return gemm_quantized.supported(i, {.y = y, .x = x, .w = w, .bias = bias, .residual = residual}) &&
             (gemm_quantized.run_body(i, *gpu(), {.y = y, .x = x, .w = w, .bias = bias, .residual = residual}), true);
    });
  }
}

std::string text(const Shape& s) { return concat(s.M, " x ", s.N, " x ", s.K); }

}  // namespace

TEST(GemmQuantizedOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const QuantFormat format : all_quant_formats)
    for (const auto& [in, out] :
         {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
      for (size_t index = 0; index < std::size(shapes); ++index)
        for (const int64_t gap : {0, 16, 3}) {
          if (!chosen()) continue;
          const Shape& s = shapes[index];
          const size_t extras = (index + static_cast<size_t>(gap)) % 4;  // bias, residual
          const Floats x = rounded(normals({s.M, s.K}, 1, 1, gap), in), w = normals({s.N, s.K}, 2);
          const Floats bias = rounded(normals({s.N}, 3), out), residual = rounded(normals({s.M, s.N}, 4, 1, gap), out);
          Floats expected = poisoned({s.M, s.N});
          gemm_quantized(cpu(), {.y = expected,
                                 .x = x,
                                 .w = Quantized(format, w),
                                 .bias = extras & 1 ? bias.tensor() : Tensor(),
                                 .residual = extras & 2 ? residual.tensor() : Tensor()});
          const OnGpu gx(x, in), gbias(bias, out), gresidual(residual, out);
          const QuantizedOnGpu gw(format, OnGpu(w), gap);
          each_gpu_body([&](auto run) {
            OnGpu y = OnGpu::poisoned({s.M, s.N}, out, gap);
            if (!run(y, gx, gw, extras & 1 ? gbias.tensor() : Tensor(), extras & 2 ? gresidual.tensor() : Tensor()))
              return;
            EXPECT_TRUE(agrees(y.read(), expected, out, 2)) << text(s) << ", gap " << gap << ", extras " << extras;
          });
        }
}

// The definition, bit for bit: gemm_forward's sum over the numbers, times the scale.
TEST(GemmQuantizedOnGpu, IsTheProductOfTheNumbersTimesTheScales) {
  HONE_GPU_OR_SKIP();
  for (const QuantFormat format : all_quant_formats)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Shape& s : shapes) {
        if (!chosen()) continue;
        const OnGpu x(normals({s.M, s.K}, 1), dtype);
        QuantizedOnGpu w(format, OnGpu(normals({s.N, s.K}, 2)));
        const Quantized numbers = w.read();
        OnGpu sums = OnGpu::poisoned({s.M, s.N});
        gemm_forward(*gpu(), {.y = sums, .x = x, .w = OnGpu(numbers.numbers(), dtype)});
        Floats expected = sums.read();
        for (int64_t i = 0; i < expected.size(); ++i) expected[i] *= numbers.scales[i % s.N];
        each_gpu_body([&](auto run) {
          OnGpu y = OnGpu::poisoned({s.M, s.N});
          if (!run(y, x, w, {}, {})) return;
          EXPECT_TRUE(close(y.read(), expected, {0, 0})) << text(s);
        });
      }
}

TEST(GemmQuantizedOnGpu, ResidualMayBeTheOutput) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& s : {Shape{9, 40, 48}, {300, 264, 1040}, {3, 264, 1040}}) {
      const OnGpu x(normals({s.M, s.K}, 1), dtype);
      const QuantizedOnGpu w(QuantFormat::int8, OnGpu(normals({s.N, s.K}, 2)));
      each_gpu_body([&](auto run) {
        OnGpu apart = OnGpu::poisoned({s.M, s.N}, dtype), in_place(normals({s.M, s.N}, 3), dtype);
        if (!run(apart, x, w, Tensor(), in_place) || !run(in_place, x, w, Tensor(), in_place)) return;
        EXPECT_TRUE(close(in_place.read(), apart.read(), {0, 0})) << text(s);
      });
    }
}

// A row's bits depend neither on the number of rows, nor on its index, nor on the body.
TEST(GemmQuantizedOnGpu, RowsDoNotDependOnTheBatch) {
  HONE_GPU_OR_SKIP();
  for (const QuantFormat format : all_quant_formats)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [N, K] : {std::pair<int64_t, int64_t>{264, 2448},
                                 {896, 896},
                                 {77, 1203},
                                 {520, 512},
                                 {72, 4864},
                                 {200, 16},
                                 {136, 14336}}) {
        if (!chosen()) continue;
        const int most = sized(1000, 300);
        const OnGpu x(normals({most, K}, 1), dtype), bias(normals({N}, 3), dtype),
            residual(normals({most, N}, 4), dtype);
        const QuantizedOnGpu w(format, OnGpu(normals({N, K}, 2)));
        OnGpu whole = OnGpu::poisoned({most, N}, dtype);
        gemm_quantized(*gpu(), {.y = whole, .x = x, .w = w, .bias = bias, .residual = residual});
        const Floats expected = whole.read();
        for (const int64_t M : sized(std::vector{1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 100, 128, 129, 256, 257, most},
                                     {1, 9, 33, 129, most}))
          each_gpu_body([&](auto run) {
            const int64_t first = (M * 31) % (most - M + 1);
            OnGpu part = OnGpu::poisoned({M, N}, dtype);
            if (!run(part, x.tensor().rows(first, M), w, bias, residual.tensor().rows(first, M))) return;
            const Floats rows = part.read();
            int64_t wrong = 0;
            for (int64_t i = 0; i < rows.size(); ++i) wrong += !same_bits(rows[i], expected[first * N + i]);
            EXPECT_EQ(wrong, 0) << text({M, N, K}) << " of " << rows.size() << " elements";
          });
      }
}

TEST(GemmQuantizedOnGpu, RefusesShapesThatDisagree) {
  HONE_GPU_OR_SKIP();
  const QuantizedOnGpu w(QuantFormat::int8, 4, 16);
  const OnGpu x(Floats({2, 16})), y(Floats({2, 4}));
  EXPECT_THROW(gemm_quantized(*gpu(), {.y = y, .x = x.tensor().columns(0, 8), .w = w}), Error);
  EXPECT_THROW(gemm_quantized(*gpu(), {.y = y, .x = x, .w = w, .bias = OnGpu(Floats({3}))}), Error);
}

}  // namespace hone::test
