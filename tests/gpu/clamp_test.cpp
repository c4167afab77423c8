#include "kernels/elementwise/clamp.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

TEST(ClampOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, dim] : {std::pair<int64_t, int64_t>{1, 1}, {0, 8}, {3, 7}, {5, 64}, {130, 1000}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int64_t gap : {0, 3, 8}) {
        Floats x = rounded(normals({rows, dim}, 1, 4, gap), dtype),
               dx = rounded(normals({rows, dim}, 2, 1, gap), dtype);
        if (x.size() > 0) x[0] = 1.5f;  // at the limit a gradient passes
        OnGpu x_gpu(x, dtype), dx_gpu(dx, dtype);
        clamp_backward(cpu(), dx, x, 1.5f);
        clamp_backward(*gpu(), dx_gpu, x_gpu, 1.5f);
        EXPECT_TRUE(close(dx_gpu.read(), dx, {0, 0})) << rows << " x " << dim << ", gap " << gap;
        clamp_forward(cpu(), x, 1.5f);
        clamp_forward(*gpu(), x_gpu, 1.5f);
        EXPECT_TRUE(close(x_gpu.read(), x, {0, 0})) << rows << " x " << dim << ", gap " << gap;
      }
}

}  // namespace
}  // namespace hone::test
