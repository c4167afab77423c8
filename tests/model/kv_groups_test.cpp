// assign_kv_layers: groups, the order of planes, layers that share a plane.
#include "model/kv_groups.h"

#include <gtest/gtest.h>

#include "core/base/check.h"

namespace hone {
namespace {

constexpr KvGroupShape global{.num_kv_heads = 2, .key_dim = 8, .value_dim = 8},
    windowed{.num_kv_heads = 2, .key_dim = 8, .value_dim = 8, .window = 4};

KvGroupShape with_planes(KvGroupShape shape, int64_t planes) {
  shape.planes = planes;
  return shape;
}

TEST(KvGroups, PlanesAreNumberedGroupByGroup) {
  std::vector<size_t> at{0, 1, 2, 3, 4};
  const std::vector<KvPlace> layers{{windowed, &at[0]}, {windowed, &at[1]}, {global, &at[2]}, {},
                                    {windowed, &at[3]}, {global, &at[4]}};
  EXPECT_EQ(assign_kv_layers(layers), (std::vector{with_planes(windowed, 3), with_planes(global, 2)}));
  EXPECT_EQ(at, (std::vector<size_t>{0, 1, 3, 2, 4}));
}

TEST(KvGroups, LayersOfOnePlaceShareAPlaneWithTheWidestWindow) {
  std::vector<size_t> at{7, 7, 9, 9, 9};
  KvGroupShape wider = windowed;
  wider.window = 6;
  const std::vector<KvPlace> layers{
      {windowed, &at[0]}, {wider, &at[1]}, {windowed, &at[2]}, {global, &at[3]}, {windowed, &at[4]}};
  EXPECT_EQ(assign_kv_layers(layers), (std::vector{with_planes(wider, 1), with_planes(global, 1)}));
  EXPECT_EQ(at, (std::vector<size_t>{0, 0, 1, 1, 1}));
}

TEST(KvGroups, RowsOfDifferentShapesAreDifferentGroupsAndCannotBeShared) {
  const KvGroupShape latent{.num_kv_heads = 1, .key_dim = 8};
  std::vector<size_t> at{0, 1};
  const std::vector<KvPlace> layers{{global, &at[0]}, {latent, &at[1]}};
  EXPECT_EQ(assign_kv_layers(layers), (std::vector{with_planes(global, 1), with_planes(latent, 1)}));
  at = {3, 3};
  EXPECT_THROW(assign_kv_layers(layers), Error);
}

}  // namespace
}  // namespace hone
