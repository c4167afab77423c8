#include "kernels/elementwise/activation.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {0, 8}, {3, 7}, {5, 64}, {130, 100}, {9, 4864}};
constexpr DType dtypes[] = {DType::f32, DType::bf16};
constexpr int64_t gaps[] = {0, 3, 8};
constexpr Activation kinds[] = {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu,
                                Activation::relu2};

TEST(GluOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const Activation kind : kinds)
    for (const auto& [rows, dim] : shapes)
      for (const DType dtype : dtypes)
        for (const int64_t gap : gaps) {
          if (!chosen()) continue;
          const Floats x = rounded(normals({rows, 2 * dim}, 1, 3, gap), dtype),
                       dy = rounded(normals({rows, dim}, 2, 1, gap), dtype);
          Floats y = poisoned({rows, dim}), dx = poisoned({rows, 2 * dim});
          glu_forward(cpu(), y, x, kind);
          glu_backward(cpu(), dx, Tensor(), dy, x, kind);
          OnGpu y_gpu = OnGpu::poisoned({rows, dim}, dtype, gap), dx_gpu = OnGpu::poisoned({rows, 2 * dim}, dtype, gap);
          glu_forward(*gpu(), y_gpu, OnGpu(x, dtype), kind);
          EXPECT_TRUE(agrees(y_gpu.read(), y, dtype)) << rows << " x " << dim << ", gap " << gap;
          glu_backward(*gpu(), dx_gpu, Tensor(), OnGpu(dy, dtype), OnGpu(x, dtype), kind);
          EXPECT_TRUE(agrees(dx_gpu.read(), dx, dtype)) << rows << " x " << dim << ", gap " << gap;
          OnGpu in_place(x, dtype), again(dy, dtype);
          glu_backward(*gpu(), in_place, again, again, in_place, kind);
          EXPECT_TRUE(close(in_place.read(), dx_gpu.read(), {0, 0})) << rows << " x " << dim << ", gap " << gap;
          EXPECT_TRUE(close(again.read(), y_gpu.read(), {0, 0})) << rows << " x " << dim << ", gap " << gap;
        }
}

TEST(ActivationsOnGpu, AgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const Activation kind : kinds)
    for (const auto& [rows, dim] : shapes)
      for (const DType dtype : dtypes)
        for (const int64_t gap : gaps) {
          if (!chosen()) continue;
          const Floats x = rounded(normals({rows, dim}, 1, 3, gap), dtype),
                       dy = rounded(normals({rows, dim}, 2), dtype);
          Floats y = poisoned({rows, dim}), dx = poisoned({rows, dim});
          activation_forward(cpu(), y, x, kind);
          activation_backward(cpu(), dx, dy, x, kind);
          OnGpu y_gpu = OnGpu::poisoned({rows, dim}, dtype), dx_gpu = OnGpu::poisoned({rows, dim}, dtype, gap),
                in_place(x, dtype);
          activation_forward(*gpu(), y_gpu, OnGpu(x, dtype), kind);
          EXPECT_TRUE(agrees(y_gpu.read(), y, dtype)) << rows << " x " << dim << ", gap " << gap;
          activation_forward(*gpu(), in_place, in_place, kind);
          EXPECT_TRUE(agrees(in_place.read(), y, dtype)) << rows << " x " << dim << ", gap " << gap;
          activation_backward(*gpu(), dx_gpu, OnGpu(dy, dtype), OnGpu(x, dtype), kind);
          EXPECT_TRUE(agrees(dx_gpu.read(), dx, dtype)) << rows << " x " << dim << ", gap " << gap;
        }
}

TEST(ActivationsOnGpu, SettleFarFromZero) {
  HONE_GPU_OR_SKIP();
  const float far[] = {200, 1e10f, -200, -1e10f};
  Floats x({1, 4}), dy({1, 4}, 1.0f), gate_up({1, 8}, 1.0f);
  for (int64_t i = 0; i < 4; ++i) x[i] = gate_up[i] = far[i];
  OnGpu y = OnGpu::poisoned({1, 4}), dx = OnGpu::poisoned({1, 4}), gated = OnGpu::poisoned({1, 4}),
        dgate_up = OnGpu::poisoned({1, 8});
  activation_forward(*gpu(), y, OnGpu(x), Activation::gelu_tanh);
  activation_backward(*gpu(), dx, OnGpu(dy), OnGpu(x), Activation::gelu_tanh);
  glu_forward(*gpu(), gated, OnGpu(gate_up), Activation::silu);
  glu_backward(*gpu(), dgate_up, Tensor(), OnGpu(dy), OnGpu(gate_up), Activation::silu);
  const Floats out = y.read(), slope = dx.read(), product = gated.read(), gradient = dgate_up.read();
  for (int64_t i = 0; i < 4; ++i) {
    const float value = far[i] > 0 ? far[i] : 0, derivative = far[i] > 0 ? 1 : 0;
    EXPECT_EQ(out[i], value);
    EXPECT_EQ(product[i], value);
    EXPECT_EQ(gradient[4 + i], value);
    EXPECT_EQ(slope[i], derivative);
    EXPECT_EQ(gradient[i], derivative);
  }
}

TEST(ActivationsOnGpu, HaveTheSameBitsAloneAndBetweenPacks) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : dtypes) {
    const int64_t rows = 40, dim = 96;
    const Floats x = normals({rows, 2 * dim}, 1, 3), apart = normals({rows, 2 * dim}, 1, 3, 1);
    OnGpu y = OnGpu::poisoned({rows, dim}, dtype), y_apart = OnGpu::poisoned({rows, dim}, dtype, 1),
          alone = OnGpu::poisoned({1, dim}, dtype);
    const OnGpu on_gpu(x, dtype);
    glu_forward(*gpu(), y, on_gpu, Activation::silu);
    glu_forward(*gpu(), y_apart, OnGpu(apart, dtype), Activation::silu);
    glu_forward(*gpu(), alone, on_gpu.tensor().rows(17, 1), Activation::silu);
    const Floats together = y.read(), between = y_apart.read(), one = alone.read();
    for (int64_t i = 0; i < rows * dim; ++i) ASSERT_TRUE(same_bits(together[i], between[i]));
    for (int64_t i = 0; i < dim; ++i) ASSERT_TRUE(same_bits(together[17 * dim + i], one[i]));
  }
}

}  // namespace
}  // namespace hone::test
