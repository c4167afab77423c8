#include "model/batch.h"

#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

TEST(Batch, PacksPartsWithTheirPositions) {
  const auto device = cpu_device();
  Context context(*device);
  Arena arena(*device);
  const std::vector<int32_t> a{5, 6, 7}, b{8}, none;
  const Batch batch = pack_batch(context, arena, std::vector<BatchPart>{{a, 0}, {none, 3}, {b, 9}});
  const auto values = [](Tensor x) { return std::vector<int32_t>(x.ptr<int32_t>(), x.ptr<int32_t>() + x.size()); };
  EXPECT_EQ(values(batch.tokens), (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(values(batch.positions), (std::vector<int32_t>{0, 1, 2, 9}));
  EXPECT_EQ(values(batch.offsets), (std::vector<int32_t>{0, 3, 3, 4}));
  EXPECT_EQ(batch.num_tokens, 4);
  EXPECT_EQ(batch.num_sequences, 3);
  EXPECT_EQ(batch.max_length, 3);
  EXPECT_EQ(batch.num_positions, 10);
}

}  // namespace
}  // namespace hone::test
