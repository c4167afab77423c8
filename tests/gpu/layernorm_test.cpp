#include "kernels/norm/layernorm.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

constexpr float eps = 1e-5f;
constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 5},    {0, 8},     {3, 7},     {5, 64},  {130, 100},
                                                  {2, 1025}, {600, 768}, {40, 1600}, {3, 4096}};
constexpr DType dtypes[] = {DType::f32, DType::bf16};
constexpr int64_t gaps[] = {0, 3, 8};

// Far from zero: shows an error if the mean is not subtracted first.
Floats inputs(int64_t rows, int64_t dim, int64_t gap, DType dtype) {
  Floats x = normals({rows, dim}, 1, 2, gap);
  for (int64_t i = 0; i < x.size(); ++i) x[i] += 5;
  return rounded(x, dtype);
}

TEST(LayernormOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, dim] : shapes)
    for (const DType dtype : dtypes)
      for (const int64_t gap : gaps) {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                           concat(rows, " x ", dim, " ", name_of(dtype), ", gap ", gap));
        const Floats x = inputs(rows, dim, gap, dtype), w = rounded(normals({dim}, 2), dtype),
                     b = rounded(normals({dim}, 3), dtype);
        for (const bool bias : {true, false}) {
          Floats y = poisoned({rows, dim}), mean = poisoned({rows}), rstd = poisoned({rows});
          layernorm_forward(cpu(),
                            {.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = bias ? b : Tensor(), .eps = eps});
          OnGpu y_gpu = OnGpu::poisoned({rows, dim}, dtype, gap), mean_gpu = OnGpu::poisoned({rows}),
                rstd_gpu = OnGpu::poisoned({rows}), unkept = OnGpu::poisoned({rows, dim}, dtype);
          const OnGpu x_gpu(x, dtype), w_gpu(w, dtype), b_gpu(b, dtype);
          layernorm_forward(*gpu(), {.y = y_gpu,
                                     .mean = mean_gpu,
                                     .rstd = rstd_gpu,
                                     .x = x_gpu,
                                     .w = w_gpu,
                                     .b = bias ? b_gpu : Tensor(),
                                     .eps = eps});
          EXPECT_TRUE(agrees(y_gpu.read(), y, dtype));
          EXPECT_TRUE(agrees(mean_gpu.read(), mean, DType::f32));
          EXPECT_TRUE(agrees(rstd_gpu.read(), rstd, DType::f32));
          layernorm_forward(*gpu(), {.y = unkept, .x = x_gpu, .w = w_gpu, .b = bias ? b_gpu : Tensor(), .eps = eps});
          EXPECT_TRUE(agrees(unkept.read(), y, dtype));
        }
      }
}

TEST(LayernormOnGpu, GradientsAgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, dim] : shapes)
    for (const DType dtype : dtypes)
      for (const int64_t gap : gaps)
        for (const bool accumulate : {false, true}) {
          if (!chosen()) continue;
          const ::testing::ScopedTrace trace(
              __FILE__, __LINE__, concat(rows, " x ", dim, " ", name_of(dtype), ", gap ", gap, ", ", accumulate));
          const Floats x = inputs(rows, dim, 0, dtype), w = rounded(normals({dim}, 2), dtype),
                       dy = rounded(normals({rows, dim}, 3, 1, gap), dtype),
                       before = rounded(normals({rows, dim}, 5, 1, gap), dtype);
          Floats y = poisoned({rows, dim}), mean = poisoned({rows}), rstd = poisoned({rows}), dw = normals({dim}, 4),
                 db = normals({dim}, 6), dx = accumulate ? before : poisoned({rows, dim});
          layernorm_forward(cpu(), {.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .eps = eps});
          OnGpu dw_gpu(dw), db_gpu(db);
          const auto start = [&] {
            return accumulate ? OnGpu(before, dtype) : OnGpu::poisoned({rows, dim}, dtype, gap);
          };
          OnGpu dx_gpu = start(), frozen = start();
          layernorm_backward(cpu(), {.dx = dx,
                                     .dw = dw,
                                     .db = db,
                                     .dy = dy,
                                     .x = x,
                                     .mean = mean,
                                     .rstd = rstd,
                                     .w = w,
                                     .accumulate = accumulate});
          const OnGpu dy_gpu(dy, dtype), x_gpu(x, dtype), mean_gpu(mean), rstd_gpu(rstd), w_gpu(w, dtype);
          layernorm_backward(*gpu(), {.dx = dx_gpu,
                                      .dw = dw_gpu,
                                      .db = db_gpu,
                                      .dy = dy_gpu,
                                      .x = x_gpu,
                                      .mean = mean_gpu,
                                      .rstd = rstd_gpu,
                                      .w = w_gpu,
                                      .accumulate = accumulate});
          EXPECT_TRUE(agrees(dx_gpu.read(), dx, dtype));
          EXPECT_TRUE(agrees(dw_gpu.read(), dw, DType::f32));
          EXPECT_TRUE(agrees(db_gpu.read(), db, DType::f32));
          layernorm_backward(*gpu(), {.dx = frozen,
                                      .dy = dy_gpu,
                                      .x = x_gpu,
                                      .mean = mean_gpu,
                                      .rstd = rstd_gpu,
                                      .w = w_gpu,
                                      .accumulate = accumulate});
          EXPECT_TRUE(close(frozen.read(), dx_gpu.read(), {0, 0}));
        }
}

TEST(LayernormOnGpu, BitsDependNeitherOnOtherRowsNorOnTheirPlace) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : dtypes)
    for (const int64_t dim : {96, 768, 4096}) {
      const int64_t rows = 50;
      const Floats x = normals({rows, dim}, 1), apart = normals({rows, dim}, 1, 1, 1), w = normals({dim}, 2),
                   b = normals({dim}, 3);
      const OnGpu on_gpu(x, dtype), weight(w, dtype), bias(b, dtype);
      OnGpu y = OnGpu::poisoned({rows, dim}, dtype), y_apart = OnGpu::poisoned({rows, dim}, dtype, 3);
      layernorm_forward(*gpu(), {.y = y, .x = on_gpu, .w = weight, .b = bias, .eps = eps});
      layernorm_forward(*gpu(), {.y = y_apart, .x = OnGpu(apart, dtype), .w = weight, .b = bias, .eps = eps});
      const Floats together = y.read(), between = y_apart.read();
      for (int64_t i = 0; i < rows * dim; ++i) ASSERT_TRUE(same_bits(together[i], between[i]));
      for (int64_t r = 0; r < rows; r += 7) {
        OnGpu alone = OnGpu::poisoned({1, dim}, dtype);
        layernorm_forward(*gpu(), {.y = alone, .x = on_gpu.tensor().rows(r, 1), .w = weight, .b = bias, .eps = eps});
        const Floats one = alone.read();
        for (int64_t i = 0; i < dim; ++i) ASSERT_TRUE(same_bits(one[i], together[r * dim + i]));
      }
    }
}

}  // namespace
}  // namespace hone::test
