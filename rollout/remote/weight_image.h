#pragma once
// WeightSnapshot: a model's values as they were at one version, on their way to workers. They stand on the learner's
// device, and, once somebody asks, in blocks on the host, each with its digest, so that a worker is sent those alone
// that it does not have.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/device/buffer_pool.h"
#include "core/net/digest.h"
#include "model/model.h"

namespace hone {

// How a model's values (Model::flat_values) are cut: first those that training leaves alone, then those that it
// changes.
struct WeightLayout {
  static constexpr int64_t chunk_bytes = int64_t{4} << 20;
  int64_t frozen_bytes = 0, trained_bytes = 0;

  static WeightLayout of(Model& model);
  struct Block {
    int64_t offset = 0, bytes = 0;  // in the values
  };
  int64_t num_frozen() const { return (frozen_bytes + chunk_bytes - 1) / chunk_bytes; }
  int64_t num_blocks() const { return num_frozen() + (trained_bytes + chunk_bytes - 1) / chunk_bytes; }
  Block block(int64_t i) const;
};

// Values on the host, cut into blocks.
class WeightChunks {
 public:
  // Reads them; they are on the device. room: of their size, on the host; none: some of its own.
  WeightChunks(Device& device, Tensor values, std::shared_ptr<const Buffer> room = nullptr);
  struct Block {
    std::string_view bytes;
    Digest digest;
  };
  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  std::shared_ptr<const Buffer> bytes_;
  std::vector<Block> blocks_;
};

// Any thread.
class WeightSnapshot {
 public:
  // trained: the values that training changes, on the device and the same as long as the image lives. frozen: the
  // others. host: has the room for its blocks.
  WeightSnapshot(int64_t version, Device& device, std::shared_ptr<const Buffer> trained,
                 std::shared_ptr<const WeightChunks> frozen, std::shared_ptr<BufferPool> host);
  int64_t version() const { return version_; }
  Tensor trained() const;  // u8 [n]
  // All of them in the layout's order; the first call reads the device.
  std::vector<WeightChunks::Block> blocks() const;
  const WeightChunks& frozen() const { return *frozen_; }

 private:
  const int64_t version_;
  Device& device_;
  const std::shared_ptr<const Buffer> trained_;
  const std::shared_ptr<const WeightChunks> frozen_;
  const std::shared_ptr<BufferPool> host_;
  mutable std::once_flag read_;
  mutable std::unique_ptr<WeightChunks> trained_blocks_;
};

}  // namespace hone
