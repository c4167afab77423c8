#include "train/ranks/weight_probe.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace hone::test {
namespace {

TEST(WeightProbe, EveryWeightIsLookedAtInTime) {
  std::vector<float> large(1000), small(30);
  const std::array<Tensor, 2> weights{host_view(std::span(large)), host_view(std::span(small))};
  std::set<const float*> seen;
  for (int64_t step = 0; step < 2000; ++step) {
    const Tensor part = probed_weights(weights, step, 64);
    EXPECT_TRUE(part.size() == 64 || part.size() == 30) << step;
    for (const float& weight : part.as<float>()) seen.insert(&weight);
  }
  EXPECT_EQ(seen.size(), large.size() + small.size());
}

TEST(WeightProbe, NothingIsLookedAtWithoutWeights) {
  EXPECT_FALSE(probed_weights({}, 3));
  EXPECT_FALSE(probed_weights(std::array<Tensor, 1>{Tensor()}, 3));
}

TEST(WeightProbe, TheDigestDependsOnEveryByte) {
  std::vector<float> values(100, 1);
  std::set<uint64_t> digests{digest_of(host_view(std::span(values)))};
  for (float& value : values) {
    value = -0.0f;
    EXPECT_TRUE(digests.insert(digest_of(host_view(std::span(values)))).second);
  }
}

}  // namespace
}  // namespace hone::test
