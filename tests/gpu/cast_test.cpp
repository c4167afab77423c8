#include "kernels/cast.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

TEST(CastOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {0, 5}, {3, 7}, {130, 257}})
    for (const DType from : {DType::f32, DType::bf16})
      for (const DType to : {DType::f32, DType::bf16}) {
        const Floats x = rounded(normals({rows, columns}, 1, 3, 2), from);
        OnGpu y = OnGpu::poisoned({rows, columns}, to, 1);
        cast(*gpu(), y, OnGpu(x, from));
        EXPECT_TRUE(close(y.read(), rounded(x, to), {0, 0}));
      }
}

TEST(AddIntoOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Floats x = rounded(normals({33, 65}, 1), dtype), before = rounded(normals({33, 65}, 2), dtype);
    OnGpu y(before, dtype);
    add_into(*gpu(), y, OnGpu(x, dtype));
    Floats expected = before;
    add_into(cpu(), expected, x);
    EXPECT_TRUE(close(y.read(), rounded(expected, dtype), {0, 0}));
  }
}

}  // namespace
}  // namespace hone::test
