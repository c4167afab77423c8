#include "kernels/norm/rmsnorm.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

constexpr float eps = 1e-5f;
constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 1},    {0, 8},    {3, 7},      {5, 64},   {130, 100},
                                                  {2, 1025}, {40, 896}, {600, 1536}, {7, 4100}, {3, 6144}};
constexpr DType dtypes[] = {DType::f32, DType::bf16};
constexpr int64_t gaps[] = {0, 3, 8};

TEST(RmsnormOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, dim] : shapes)
    for (const DType dtype : dtypes)
      for (const int64_t gap : gaps)
        for (const float offset : {0.0f, 1.0f}) {
          const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                             concat(rows, " x ", dim, " ", name_of(dtype), ", gap ", gap));
          const Floats x = rounded(normals({rows, dim}, 1, 2, gap), dtype), w = rounded(normals({dim}, 2), dtype);
          Floats y = poisoned({rows, dim}), rstd = poisoned({rows});
          rmsnorm_forward(cpu(), y, rstd, x, w, eps, offset);
          OnGpu y_gpu = OnGpu::poisoned({rows, dim}, dtype, gap), rstd_gpu = OnGpu::poisoned({rows}),
                in_place(x, dtype);
          rmsnorm_forward(*gpu(), y_gpu, rstd_gpu, OnGpu(x, dtype), OnGpu(w, dtype), eps, offset);
          EXPECT_TRUE(agrees(y_gpu.read(), y, dtype));
          EXPECT_TRUE(agrees(rstd_gpu.read(), rstd, DType::f32));
          rmsnorm_forward(*gpu(), in_place, {}, in_place, OnGpu(w, dtype), eps, offset);
          EXPECT_TRUE(agrees(in_place.read(), y, dtype));
        }
}

TEST(RmsnormOnGpu, GradientsAgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, dim] : shapes) {
    if (dim == 1) continue;  // a row of one number is scaled to 1: its gradient is rounding error only
    for (const DType dtype : dtypes)
      for (const int64_t gap : gaps)
        for (const bool accumulate : {false, true})
          for (const float offset : {0.0f, 1.0f}) {
            if (!chosen()) continue;
            const ::testing::ScopedTrace trace(
                __FILE__, __LINE__, concat(rows, " x ", dim, " ", name_of(dtype), ", gap ", gap, ", ", accumulate));
            const Floats x = rounded(normals({rows, dim}, 1, 2), dtype), w = rounded(normals({dim}, 2), dtype),
                         dy = rounded(normals({rows, dim}, 3, 1, gap), dtype),
                         before = rounded(normals({rows, dim}, 5, 1, gap), dtype);
            Floats y = poisoned({rows, dim}), rstd = poisoned({rows}), dw = normals({dim}, 4),
                   dx = accumulate ? before : poisoned({rows, dim});
            rmsnorm_forward(cpu(), y, rstd, x, w, eps, offset);
            OnGpu dw_gpu(dw), dx_gpu = accumulate ? OnGpu(before, dtype) : OnGpu::poisoned({rows, dim}, dtype, gap);
            rmsnorm_backward(cpu(), {.dx = dx,
                                     .dw = dw,
                                     .dy = dy,
                                     .x = x,
                                     .rstd = rstd,
                                     .w = w,
                                     .accumulate = accumulate,
                                     .offset = offset});
            rmsnorm_backward(*gpu(), {.dx = dx_gpu,
                                      .dw = dw_gpu,
                                      .dy = OnGpu(dy, dtype),
                                      .x = OnGpu(x, dtype),
                                      .rstd = OnGpu(rstd),
                                      .w = OnGpu(w, dtype),
                                      .accumulate = accumulate,
                                      .offset = offset});
            EXPECT_TRUE(agrees(dx_gpu.read(), dx, dtype));
            EXPECT_TRUE(agrees(dw_gpu.read(), dw, DType::f32));
            OnGpu frozen = accumulate ? OnGpu(before, dtype) : OnGpu::poisoned({rows, dim}, dtype, gap);
            rmsnorm_backward(*gpu(), {.dx = frozen,
                                      .dy = OnGpu(dy, dtype),
                                      .x = OnGpu(x, dtype),
                                      .rstd = OnGpu(rstd),
                                      .w = OnGpu(w, dtype),
                                      .accumulate = accumulate,
                                      .offset = offset});
            EXPECT_TRUE(close(frozen.read(), dx_gpu.read(), {0, 0}));
          }
  }
}

TEST(RmsnormOnGpu, ALongBatchHasItsGradient) {
  HONE_GPU_OR_SKIP();
  const int64_t rows = 32768, dim = 96;
  const Floats x = rounded(normals({rows, dim}, 1), DType::bf16), w({dim}, 1.0f),
               dy = rounded(normals({rows, dim}, 2), DType::bf16);
  Floats rstd = poisoned({rows}), y = poisoned({rows, dim});
  rmsnorm_forward(cpu(), y, rstd, x, w, eps, 0.0f);
  std::vector<double> expected(dim);
  for (int64_t i = 0; i < rows * dim; ++i)
    expected[static_cast<size_t>(i % dim)] += double{dy[i]} * x[i] * rstd[i / dim];
  OnGpu dx = OnGpu::poisoned({rows, dim}, DType::bf16), dw(Floats({dim}));
  rmsnorm_backward(*gpu(), {.dx = dx,
                            .dw = dw,
                            .dy = OnGpu(dy, DType::bf16),
                            .x = OnGpu(x, DType::bf16),
                            .rstd = OnGpu(rstd),
                            .w = OnGpu(w, DType::bf16),
                            .accumulate = false});
  EXPECT_TRUE(close(dw.read(), expected, {1e-4, 1e-3}));
}

TEST(RmsnormOnGpu, BitsDependNeitherOnOtherRowsNorOnTheirPlace) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : dtypes)
    for (const int64_t dim : {96, 1536, 4096}) {
      const int64_t rows = 50;
      const Floats x = normals({rows, dim}, 1), apart = normals({rows, dim}, 1, 1, 1), w = normals({dim}, 2);
      const OnGpu on_gpu(x, dtype), weight(w, dtype);
      OnGpu y = OnGpu::poisoned({rows, dim}, dtype), y_apart = OnGpu::poisoned({rows, dim}, dtype, 3);
      rmsnorm_forward(*gpu(), y, {}, on_gpu, weight, eps, 0.0f);
      rmsnorm_forward(*gpu(), y_apart, {}, OnGpu(apart, dtype), weight, eps, 0.0f);
      const Floats together = y.read(), between = y_apart.read();
      for (int64_t i = 0; i < rows * dim; ++i) ASSERT_TRUE(same_bits(together[i], between[i]));
      for (int64_t r = 0; r < rows; r += 7) {
        OnGpu alone = OnGpu::poisoned({1, dim}, dtype);
        rmsnorm_forward(*gpu(), alone, {}, on_gpu.tensor().rows(r, 1), weight, eps, 0.0f);
        const Floats one = alone.read();
        for (int64_t i = 0; i < dim; ++i) ASSERT_TRUE(same_bits(one[i], together[r * dim + i]));
      }
    }
}

}  // namespace
}  // namespace hone::test
