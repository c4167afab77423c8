#include "rollout/remote/weight_snapshot.h"

#include <algorithm>

#include "core/base/parallel_for.h"

namespace hone {

WeightLayout WeightLayout::of(Model& model) {
  const int64_t all = static_cast<int64_t>(model.flat_values().bytes()),
                trained = static_cast<int64_t>(model.trainable_values().bytes());
  return {.frozen_bytes = all - trained, .trained_bytes = trained};
}

WeightLayout::Chunk WeightLayout::chunk(int64_t i) const {
  const bool frozen = i < num_frozen_chunks();
  const int64_t begin = frozen ? 0 : frozen_bytes, end = frozen ? frozen_bytes : frozen_bytes + trained_bytes;
  const int64_t offset = begin + (frozen ? i : i - num_frozen_chunks()) * chunk_bytes;
  return {offset, std::min(chunk_bytes, end - offset)};
}

WeightChunks::WeightChunks(Device& device, Tensor values, std::shared_ptr<const Buffer> host)
    : bytes_(host ? std::move(host) : std::make_shared<const Buffer>(device, values.bytes(), MemoryKind::pinned)) {
  Context context(device);
  context.copy({bytes_->data(), values.dtype, DeviceKind::cpu, values.dims()}, values);
  context.synchronize();
  const WeightLayout layout{.frozen_bytes = 0, .trained_bytes = static_cast<int64_t>(bytes_->size())};
  chunks_.resize(static_cast<size_t>(layout.num_chunks()));
  parallel_for(layout.num_chunks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [offset, bytes] = layout.chunk(i);
      Chunk& chunk = chunks_[static_cast<size_t>(i)];
      chunk.bytes = {static_cast<const char*>(bytes_->data()) + offset, static_cast<size_t>(bytes)};
      chunk.digest = sha256(chunk.bytes);
    }
  });
}

WeightSnapshot::WeightSnapshot(int64_t version, Device& device, std::shared_ptr<const Buffer> trained,
                               std::shared_ptr<const WeightChunks> frozen, std::shared_ptr<BufferPool> host)
    : version_(version),
      device_(device),
      trained_(std::move(trained)),
      frozen_(std::move(frozen)),
      host_(std::move(host)) {}

Tensor WeightSnapshot::trained() const {
  return {trained_->data(), DType::u8, device_.kind(), {static_cast<int64_t>(trained_->size())}};
}

std::vector<WeightChunks::Chunk> WeightSnapshot::chunks() const {
  std::call_once(read_, [this] {
    trained_chunks_ = std::make_unique<WeightChunks>(device_, trained(), host_->take(trained_->size()));
  });
  std::vector<WeightChunks::Chunk> out = frozen_->chunks();
  out.insert(out.end(), trained_chunks_->chunks().begin(), trained_chunks_->chunks().end());
  return out;
}

}  // namespace hone
