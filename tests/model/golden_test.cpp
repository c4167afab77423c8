// Logits and gradients of every family, compared with transformers' for the same weights.
#include "tests/model/golden.h"

namespace hone::test {
namespace {

TEST(GoldenFamilies, LogitsAndGradientsAreThoseOfTransformers) {
  const auto device = cpu_device();
  Context context(*device);
  for (const char* family : golden_families) {
    const Golden::Errors errors = Golden(context, family, DType::f32).errors();
    EXPECT_LE(errors.logits, 1e-4) << family;
    EXPECT_LE(errors.gradients, 1e-4) << family << ": " << errors.worst;
    EXPECT_LE(errors.aux_loss, 1e-4) << family;
  }
}

}  // namespace
}  // namespace hone::test
