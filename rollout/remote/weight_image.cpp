#include "rollout/remote/weight_image.h"

#include <algorithm>

#include "core/base/parallel_for.h"

namespace hone {

WeightLayout WeightLayout::of(Model& model) {
  const int64_t all = static_cast<int64_t>(model.flat_values().bytes()),
                trained = static_cast<int64_t>(model.trainable_values().bytes());
  return {.frozen_bytes = all - trained, .trained_bytes = trained};
}

WeightLayout::Block WeightLayout::block(int64_t i) const {
  const bool frozen = i < num_frozen();
  const int64_t begin = frozen ? 0 : frozen_bytes, end = frozen ? frozen_bytes : frozen_bytes + trained_bytes;
  const int64_t offset = begin + (frozen ? i : i - num_frozen()) * chunk_bytes;
  return {offset, std::min(chunk_bytes, end - offset)};
}

WeightChunks::WeightChunks(Device& device, Tensor values, std::shared_ptr<const Buffer> room)
    : bytes_(room ? std::move(room) : std::make_shared<const Buffer>(device, values.bytes(), MemoryKind::pinned)) {
  Context context(device);
  context.copy({bytes_->data(), values.dtype, DeviceKind::cpu, values.dims()}, values);
  context.synchronize();
  const WeightLayout layout{.frozen_bytes = 0, .trained_bytes = static_cast<int64_t>(bytes_->size())};
  blocks_.resize(static_cast<size_t>(layout.num_blocks()));
  parallel_for(layout.num_blocks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [offset, bytes] = layout.block(i);
      Block& block = blocks_[static_cast<size_t>(i)];
      block.bytes = {static_cast<const char*>(bytes_->data()) + offset, static_cast<size_t>(bytes)};
      block.digest = sha256(block.bytes);
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

std::vector<WeightChunks::Block> WeightSnapshot::blocks() const {
  std::call_once(read_, [this] {
    trained_blocks_ = std::make_unique<WeightChunks>(device_, trained(), host_->take(trained_->size()));
  });
  std::vector<WeightChunks::Block> out = frozen_->blocks();
  out.insert(out.end(), trained_blocks_->blocks().begin(), trained_blocks_->blocks().end());
  return out;
}

}  // namespace hone
