#include "kernels/elementwise/softcap.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

TEST(SoftcapOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, dim] : {std::pair<int64_t, int64_t>{1, 1}, {0, 8}, {3, 7}, {130, 1000}})
    for (const int64_t gap : {0, 3}) {
      Floats x = normals({rows, dim}, 1, 20, gap), dx = normals({rows, dim}, 2);
      OnGpu x_gpu(x), dx_gpu(dx);
      softcap_forward(cpu(), x, 15);
      softcap_forward(*gpu(), x_gpu, 15);
      EXPECT_TRUE(agrees(x_gpu.read(), x, DType::f32)) << rows << " x " << dim << ", gap " << gap;
      softcap_backward(cpu(), dx, x, 15);
      softcap_backward(*gpu(), dx_gpu, OnGpu(x), 15);
      EXPECT_TRUE(agrees(dx_gpu.read(), dx, DType::f32)) << rows << " x " << dim << ", gap " << gap;
    }
}

}  // namespace
}  // namespace hone::test
