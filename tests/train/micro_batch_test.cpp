#include "train/micro_batch.h"

#include <gtest/gtest.h>

#include "tests/train/rig.h"

namespace hone {
namespace {

using test::make_samples, test::pointers;

std::vector<std::pair<size_t, size_t>> cut(std::span<const size_t> lengths, size_t unit, int64_t max_tokens) {
  const std::vector<Sample> samples = make_samples(lengths);
  std::vector<MicroBatch> micro_batches;
  make_micro_batches(pointers(samples), unit, max_tokens, micro_batches);
  std::vector<std::pair<size_t, size_t>> out;
  for (const MicroBatch& micro : micro_batches) out.emplace_back(micro.begin, micro.end);
  return out;
}

TEST(MakeMicroBatches, FillsInOrderAndNeverPartsAPair) {
  constexpr size_t lengths[] = {4, 4, 3, 5, 2, 2};
  using Cuts = std::vector<std::pair<size_t, size_t>>;
  EXPECT_EQ(cut(lengths, 1, 100), (Cuts{{0, 6}}));
  EXPECT_EQ(cut(lengths, 1, 8), (Cuts{{0, 2}, {2, 4}, {4, 6}}));
  EXPECT_EQ(cut(lengths, 1, 11), (Cuts{{0, 3}, {3, 6}}));
  EXPECT_EQ(cut(lengths, 2, 11), (Cuts{{0, 2}, {2, 4}, {4, 6}}));
  EXPECT_EQ(cut({}, 1, 8), Cuts{});
}

TEST(MakeMicroBatches, ASampleLongerThanAMicroBatchIsOneOfItsOwn) {
  constexpr size_t lengths[] = {4, 4, 3, 6, 1, 1};
  using Cuts = std::vector<std::pair<size_t, size_t>>;
  EXPECT_EQ(cut(lengths, 1, 5), (Cuts{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 6}}));
  EXPECT_EQ(cut(lengths, 1, 1), (Cuts{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}}));
  EXPECT_EQ(cut(lengths, 2, 8), (Cuts{{0, 2}, {2, 4}, {4, 6}})) << "the pair of 9 is not parted";
  EXPECT_THROW(cut(std::span(lengths).first(3), 2, 100), Error) << "three samples are no pairs";
}

TEST(MicroBatchData, RowsPredictTheTokensThatAreTrainedOn) {
  std::vector<Sample> samples(2);
  samples[0].tokens = {5, 6, 7}, samples[0].columns.set(columns::mask, {0, 1, 0});
  samples[1].tokens = {8, 9, 1, 2}, samples[1].columns.set(columns::mask, {0, 0, 1, 1});
  MicroBatchData staging;
  staging.fill(pointers(samples));
  EXPECT_EQ(std::vector(staging.rows().begin(), staging.rows().end()), (std::vector<int32_t>{0, 4, 5}));
  EXPECT_EQ(std::vector(staging.targets().begin(), staging.targets().end()), (std::vector<int32_t>{6, 1, 2}));
  std::vector<float> column, rows;
  staging.to_tokens(std::vector<float>{10, 20, 30}, column);
  EXPECT_EQ(column, (std::vector<float>{0, 10, 0, 0, 0, 20, 30}));
  staging.to_rows(column, rows);
  EXPECT_EQ(rows, (std::vector<float>{10, 20, 30}));
  EXPECT_EQ(staging.batch(1).num_sequences(), 2u);
  EXPECT_TRUE(staging.batch(1).columns.find(columns::advantage).empty());
}

}  // namespace
}  // namespace hone
