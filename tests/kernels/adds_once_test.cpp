#include "kernels/adds_once.h"

#include "kernels/elementwise/embedding.h"
#include "kernels/gemm/gemm.h"
#include "tests/kernels/adds_once_check.h"

namespace hone::test {
namespace {

TEST(AddsOnce, DeclaredOpsOfTheCpuDo) {
  expect_declared_ops_add_once(
      DeviceKind::cpu, {{"embedding_backward", [] {
                           for (const int32_t distinct : {2, 40}) {
                             const Floats dy = normals({300, 70}, 1);
                             const Ids ids = random_ids(300, distinct, 2);
                             each_cpu_body(embedding_backward, [&](auto body, const std::string&) {
                               expect_adds_once({Floats({40, 70})}, [&](auto& grads) { body(grads[0], dy, ids); });
                             });
                           }
                         }}});
}

TEST(AddsOnce, IsDeclaredByOpAndDevice) {
  EXPECT_TRUE(adds_once(embedding_backward, DeviceKind::cpu));
  EXPECT_FALSE(adds_once(embedding_backward, DeviceKind::meta));
  EXPECT_FALSE(adds_once(gemm_backward_weight, DeviceKind::cpu)) << "a product adds once per block of its rows";
}

}  // namespace
}  // namespace hone::test
