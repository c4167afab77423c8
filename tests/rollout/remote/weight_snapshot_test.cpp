// WeightLayout and WeightSnapshot: how a model's values are split into chunks, and their digests.
#include "rollout/remote/weight_snapshot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

constexpr int64_t chunk = WeightLayout::chunk_bytes;

TEST(WeightLayoutTest, ChunksAreContiguousAndNeverMixFrozenAndTrained) {
  for (const int64_t frozen : {int64_t{0}, int64_t{1}, chunk - 1, chunk, chunk + 1, 3 * chunk + 7})
    for (const int64_t trained : {int64_t{1}, int64_t{4}, chunk - 1, chunk, chunk + 1, 2 * chunk + 5}) {
      const WeightLayout layout{.frozen_bytes = frozen, .trained_bytes = trained};
      int64_t end = 0;
      for (int64_t i = 0; i < layout.num_chunks(); ++i) {
        const auto [offset, bytes] = layout.chunk(i);
        EXPECT_EQ(offset, end);
        EXPECT_GT(bytes, 0);
        EXPECT_LE(bytes, chunk);
        end = offset + bytes;
        EXPECT_EQ(end <= frozen, i < layout.num_frozen_chunks())
            << "frozen " << frozen << ", trained " << trained << ", block " << i;
        EXPECT_TRUE(end <= frozen || offset >= frozen);
      }
      EXPECT_EQ(end, frozen + trained);
    }
}

class WeightSnapshotTest : public ::testing::Test {
 protected:
  static Tensor as_bytes(const Tensor& values) {
    return {values.data, DType::u8, values.device, {static_cast<int64_t>(values.bytes())}};
  }
  std::shared_ptr<const Buffer> copy_of(const Tensor& values) {
    auto out = std::make_shared<Buffer>(*device, values.bytes());
    std::memcpy(out->data(), values.data, values.bytes());
    return out;
  }
  static std::string joined(const std::vector<WeightChunks::Chunk>& chunks) {
    std::string out;
    for (const auto& [bytes, digest] : chunks) out += bytes;
    return out;
  }
  static std::string text_of(const Tensor& values) { return {static_cast<const char*>(values.data), values.bytes()}; }

  std::unique_ptr<Device> device = cpu_device();
  std::shared_ptr<BufferPool> host = std::make_shared<BufferPool>(*device, MemoryKind::pinned);
  Context context{*device};
};

TEST_F(WeightSnapshotTest, ChunksAreTheValuesWithTheirDigests) {
  for (const int64_t size : {int64_t{1}, chunk, chunk + 1, 2 * chunk + 4097}) {
    Buffer values(*device, static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i)
      static_cast<unsigned char*>(values.data())[i] = static_cast<unsigned char>(i * 7 + i / chunk);
    const Tensor tensor(values.data(), DType::u8, DeviceKind::cpu, {size});
    const WeightChunks chunks(*device, tensor);
    EXPECT_EQ(std::ssize(chunks.chunks()), (size + chunk - 1) / chunk);
    EXPECT_TRUE(joined(chunks.chunks()) == text_of(tensor));
    for (const auto& [bytes, digest] : chunks.chunks()) EXPECT_EQ(digest, sha256(bytes));
    static_cast<char*>(values.data())[0] ^= 1;
    EXPECT_FALSE(joined(chunks.chunks()) == text_of(tensor)) << "they are a copy";
  }
}

TEST_F(WeightSnapshotTest, WithoutAdaptersEverythingIsTrained) {
  const std::unique_ptr<Model> model = make_tiny(context, tiny_config("llama"));
  const WeightLayout layout = WeightLayout::of(*model);
  EXPECT_EQ(layout.frozen_bytes, 0);
  EXPECT_EQ(layout.trained_bytes, static_cast<int64_t>(model->flat_values().bytes()));
  const auto none = std::make_shared<WeightChunks>(
      *device, Tensor(model->flat_values().data, DType::u8, DeviceKind::cpu, {int64_t{0}}));
  EXPECT_TRUE(none->chunks().empty());
  const WeightSnapshot snapshot(3, *device, copy_of(model->flat_values()), none, host);
  EXPECT_EQ(snapshot.version(), 3);
  EXPECT_EQ(std::ssize(snapshot.chunks()), layout.num_chunks());
  EXPECT_TRUE(joined(snapshot.chunks()) == text_of(model->flat_values()));
}

TEST_F(WeightSnapshotTest, UnderAdaptersTheBaseComesFirstAndIsTheSameForEveryVersion) {
  const std::unique_ptr<Model> model = make_tiny(context, tiny_config("llama"), true, {.r = 2});
  const WeightLayout layout = WeightLayout::of(*model);
  EXPECT_GT(layout.frozen_bytes, layout.trained_bytes);
  EXPECT_GT(layout.trained_bytes, 0);
  const Tensor all = model->flat_values();
  const auto frozen =
      std::make_shared<WeightChunks>(*device, Tensor(all.data, DType::u8, all.device, {layout.frozen_bytes}));
  const WeightSnapshot before(0, *device, copy_of(model->trainable_values()), frozen, host);
  const std::vector<WeightChunks::Chunk> old = before.chunks();
  ASSERT_EQ(std::ssize(old), layout.num_chunks());
  EXPECT_TRUE(joined(old) == text_of(all));
  for (int64_t i = 0; i < layout.num_chunks(); ++i)
    EXPECT_EQ(std::ssize(old[static_cast<size_t>(i)].bytes), layout.chunk(i).bytes);
  for (float& value : model->trainable_values().as<float>()) value += 1;
  const WeightSnapshot after(1, *device, copy_of(model->trainable_values()), frozen, host);
  const std::vector<WeightChunks::Chunk> now = after.chunks();
  EXPECT_TRUE(joined(now) == text_of(all));
  for (int64_t i = 0; i < layout.num_chunks(); ++i) {
    const auto place = static_cast<size_t>(i);
    EXPECT_EQ(now[place].digest == old[place].digest, i < layout.num_frozen_chunks()) << i;
  }
}

TEST_F(WeightSnapshotTest, ConcurrentThreadsGetTheSameChunks) {
  const std::unique_ptr<Model> model = make_tiny(context, tiny_config("llama"));
  const auto none = std::make_shared<WeightChunks>(
      *device, Tensor(model->flat_values().data, DType::u8, DeviceKind::cpu, {int64_t{0}}));
  const WeightSnapshot snapshot(0, *device, copy_of(model->flat_values()), none, host);
  std::vector<std::vector<WeightChunks::Chunk>> got(4);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : got) threads.emplace_back([&] { mine = snapshot.chunks(); });
  }
  for (const auto& mine : got) {
    ASSERT_EQ(mine.size(), got[0].size());
    for (size_t i = 0; i < mine.size(); ++i) EXPECT_EQ(mine[i].bytes.data(), got[0][i].bytes.data());
    EXPECT_TRUE(joined(mine) == text_of(model->flat_values()));
  }
}

}  // namespace
}  // namespace hone::test
