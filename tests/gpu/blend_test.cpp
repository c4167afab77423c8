#include "kernels/elementwise/blend.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

TEST(BlendOnGpu, HasTheBitsOfTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const int64_t count : {1, 7, 1024, 70001})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Floats x = rounded(normals({count}, 1), dtype), before = rounded(normals({count}, 2), dtype);
      Floats expected = before;
      blend(cpu(), expected, x, 0.6);
      OnGpu y(before, dtype);
      blend(*gpu(), y, OnGpu(x, dtype), 0.6);
      EXPECT_TRUE(close(y.read(), rounded(expected, dtype), {0, 0})) << count << " of " << name_of(dtype);
    }
}

}  // namespace
}  // namespace hone::test
