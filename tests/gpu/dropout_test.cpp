#include "kernels/elementwise/dropout.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

TEST(DropoutOnGpu, HasTheSpecificationsDraws) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 1}, {0, 8}, {3, 7}, {5, 64}, {130, 100}, {9, 4864}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int64_t gap : {0, 3, 8})
        for (const float rate : {0.0f, 0.3f}) {
          const Dropout which{.rate = rate, .seed = 5, .stream = 9, .first_row = 1000};
          const Floats x = rounded(normals({rows, columns}, 1, 3, gap), dtype);
          Floats y = poisoned({rows, columns});
          dropout(cpu(), y, x, 1.5f, which);
          OnGpu out = OnGpu::poisoned({rows, columns}, dtype, gap), in_place(x, dtype);
          dropout(*gpu(), out, OnGpu(x, dtype), 1.5f, which);
          EXPECT_TRUE(agrees(out.read(), y, dtype)) << rows << " x " << columns << ", gap " << gap;
          dropout(*gpu(), in_place, in_place, 1.5f, which);
          EXPECT_TRUE(close(in_place.read(), out.read(), {0, 0})) << rows << " x " << columns << ", gap " << gap;
        }
}

}  // namespace
}  // namespace hone::test
