#include "kernels/elementwise/cast.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {0, 5}, {3, 7}, {130, 257}, {65, 896}, {2, 70001}};

TEST(CastOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, columns] : shapes)
    for (const DType from : {DType::f32, DType::bf16})
      for (const DType to : {DType::f32, DType::bf16})
        for (const auto& [x_gap, y_gap] : {std::pair<int64_t, int64_t>{0, 0}, {8, 0}, {8, 16}, {2, 1}}) {
          const Floats x = rounded(normals({rows, columns}, 1, 3, x_gap), from);
          OnGpu y = OnGpu::poisoned({rows, columns}, to, y_gap);
          cast(*gpu(), y, OnGpu(x, from));
          EXPECT_TRUE(close(y.read(), rounded(x, to), {0, 0}))
              << rows << " x " << columns << ", gaps " << x_gap << ", " << y_gap;
        }
}

TEST(CastOnGpu, TakesViewsThatBeginBetweenPacks) {
  HONE_GPU_OR_SKIP();
  const Floats x = normals({4000}, 1);
  const OnGpu from(x);
  for (const int64_t begin : {1, 2, 4, 7}) {
    OnGpu y = OnGpu::poisoned({4000}, DType::bf16);
    cast(*gpu(), y.tensor().rows(begin, 3000), from.tensor().rows(begin + 1, 3000));
    const Floats out = y.read();
    for (int64_t i = 0; i < 4000; ++i) {
      if (i < begin || i >= begin + 3000)
        ASSERT_TRUE(std::isnan(out[i])) << i;
      else
        ASSERT_EQ(out[i], to_float(to_bf16(x[i + 1]))) << i;
    }
  }
}

TEST(AddIntoOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, columns] : shapes)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Floats x = rounded(normals({rows, columns}, 1), dtype),
                   before = rounded(normals({rows, columns}, 2), dtype);
      Floats expected = before;
      add_into(cpu(), expected, x);
      for (const int64_t gap : {0, 3, 8}) {
        const Floats apart = rounded(normals({rows, columns}, 1, 1, gap), dtype);
        OnGpu y(before, dtype);
        add_into(*gpu(), y, OnGpu(apart, dtype));
        EXPECT_TRUE(close(y.read(), rounded(expected, dtype), {0, 0})) << rows << " x " << columns << ", gap " << gap;
      }
    }
}

}  // namespace
}  // namespace hone::test
