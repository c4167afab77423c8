#include "rollout/remote/worker_model.h"

#include <algorithm>
#include <cstring>

namespace hone {

constexpr int64_t kMaxPendingCompletions = int64_t{1} << 20;  // the learner itself bounds its requests

WorkerModel::WorkerModel(Device& device, const WorkerSetup& setup)
    : device_(device), context_(device), model_(make_model(setup.model, "the learner's model")) {
  HONE_CHECK(device.kind() == setup.device, "the learner computes on ", name_of(setup.device), ", this worker on ",
             name_of(device.kind()), ": log-probs would differ; start the worker with --device ",
             name_of(setup.device));
  context_.set_numerics(setup.numerics);
  if (setup.lora.r > 0) model_->add_lora(setup.lora);
  model_->allocate(context_, setup.dtype, false);
  context_.zero(model_->flat_values());
  if (!setup.tokenizer.empty()) tokenizer_ = tokenizer_of(setup.tokenizer);
  layout_ = WeightLayout::of(*model_);
  staged_ = Buffer(device, static_cast<size_t>(layout_.frozen_bytes + layout_.trained_bytes), MemoryKind::pinned);
  digests_.resize(static_cast<size_t>(layout_.num_chunks()));
  engine_ = std::make_unique<Engine>(context_, *model_, tokenizer_ ? &*tokenizer_ : nullptr, setup.engine);
  async_engine_ = std::make_unique<AsyncEngine>(*engine_, kMaxPendingCompletions);
}

void WorkerModel::put(int64_t chunk, std::string_view bytes, const Digest& digest) {
  HONE_CHECK(chunk >= 0 && chunk < layout_.num_chunks(), "chunk ", chunk, " does not exist; there are ",
             layout_.num_chunks());
  const auto [offset, size] = layout_.chunk(chunk);
  HONE_CHECK(std::ssize(bytes) == size, "chunk ", chunk, " has ", size, " bytes, not ", bytes.size());
  std::memcpy(static_cast<char*>(staged_.data()) + offset, bytes.data(), bytes.size());
  digests_[static_cast<size_t>(chunk)] = digest;
  new_chunks_.push_back(chunk);
}

std::vector<int64_t> WorkerModel::missing(std::span<const Digest> digests) const {
  HONE_CHECK(digests.size() == digests_.size() || std::ssize(digests) == layout_.num_frozen_chunks(), digests.size(),
             " digests for ", digests_.size(), " chunks");
  std::vector<int64_t> out;
  for (size_t i = 0; i < digests.size(); ++i)
    if (digests_[i] != digests[i]) out.push_back(static_cast<int64_t>(i));
  return out;
}

Tensor WorkerModel::direct_buffer() {
  if (direct_buffer_.size() == 0) direct_buffer_ = Buffer(device_, static_cast<size_t>(layout_.trained_bytes));
  return {direct_buffer_.data(), DType::u8, device_.kind(), {layout_.trained_bytes}};
}

void WorkerModel::copy_chunks(bool sent_directly) {
  char* const values = static_cast<char*>(model_->flat_values().data);
  std::ranges::sort(new_chunks_);
  for (auto next = new_chunks_.begin(); next != new_chunks_.end();) {  // consecutive chunks are one copy
    const int64_t begin = layout_.chunk(*next).offset;
    int64_t end = begin;
    for (; next != new_chunks_.end() && layout_.chunk(*next).offset <= end; ++next)
      end = layout_.chunk(*next).offset + layout_.chunk(*next).bytes;
    context_.copy({values + begin, DType::u8, device_.kind(), {end - begin}},
                  {static_cast<char*>(staged_.data()) + begin, DType::u8, DeviceKind::cpu, {end - begin}});
  }
  new_chunks_.clear();
  if (sent_directly) {
    context_.copy({values + layout_.frozen_bytes, DType::u8, device_.kind(), {layout_.trained_bytes}}, direct_buffer());
    for (int64_t i = layout_.num_frozen_chunks(); i < layout_.num_chunks(); ++i)
      digests_[static_cast<size_t>(i)].reset();
  }
  context_.synchronize();
}

void WorkerModel::commit(int64_t version, bool sent_directly) {
  try {
    async_engine_->run_between_steps([&](Engine& engine) {
      copy_chunks(sent_directly);
      engine.set_policy_version(version, true);
    });
  } catch (...) {
    clear_version();
    std::ranges::fill(digests_, std::nullopt);
    throw;
  }
  version_ = version;
}

}  // namespace hone
