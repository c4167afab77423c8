#pragma once
// WeightSnapshot: the weights of one policy version on their way to workers. They are on the learner's device and,
// after the first chunks(), also on the host as chunks with digests, so that a worker gets only the chunks that it
// lacks.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/device/buffer_pool.h"
#include "core/net/digest.h"
#include "model/model.h"

namespace hone {

// How the bytes of Model::flat_values are split into chunks: first the frozen values, then the trained ones.
struct WeightLayout {
  static constexpr int64_t chunk_bytes = int64_t{4} << 20;
  int64_t frozen_bytes = 0, trained_bytes = 0;

  static WeightLayout of(Model& model);
  struct Chunk {
    int64_t offset = 0, bytes = 0;  // offset in the values
  };
  int64_t num_frozen_chunks() const { return (frozen_bytes + chunk_bytes - 1) / chunk_bytes; }
  int64_t num_chunks() const { return num_frozen_chunks() + (trained_bytes + chunk_bytes - 1) / chunk_bytes; }
  Chunk chunk(int64_t i) const;
};

// Values on the host, split into chunks.
class WeightChunks {
 public:
  // Copies values from the device. `host` is a host buffer of their size; null allocates one.
  WeightChunks(Device& device, Tensor values, std::shared_ptr<const Buffer> host = nullptr);
  struct Chunk {
    std::string_view bytes;
    Digest digest;
  };
  const std::vector<Chunk>& chunks() const { return chunks_; }

 private:
  std::shared_ptr<const Buffer> bytes_;
  std::vector<Chunk> chunks_;
};

// Any thread.
class WeightSnapshot {
 public:
  // trained: the trained values, on the device; they must not change while the snapshot lives. frozen: the others.
  // host: the pool of the chunks' buffer.
  WeightSnapshot(int64_t version, Device& device, std::shared_ptr<const Buffer> trained,
                 std::shared_ptr<const WeightChunks> frozen, std::shared_ptr<BufferPool> host);
  int64_t version() const { return version_; }
  Tensor trained() const;  // u8 [n]
  // All chunks in the layout's order. The first call copies the trained values to the host.
  std::vector<WeightChunks::Chunk> chunks() const;
  const WeightChunks& frozen() const { return *frozen_; }

 private:
  const int64_t version_;
  Device& device_;
  const std::shared_ptr<const Buffer> trained_;
  const std::shared_ptr<const WeightChunks> frozen_;
  const std::shared_ptr<BufferPool> host_;
  mutable std::once_flag read_;
  mutable std::unique_ptr<WeightChunks> trained_chunks_;
};

}  // namespace hone
