#include "rollout/remote/worker_model.h"

#include <algorithm>
#include <cstring>

namespace hone {

constexpr int64_t most_replies = int64_t{1} << 20;  // a learner has rounds, which bound what it asks

WorkerModel::WorkerModel(Device& device, const WorkerSetup& setup)
    : device_(device), context_(device), model_(make_model(setup.model, "the learner's model")) {
  HONE_CHECK(device.kind() == setup.device, "the learner computes on ", name_of(setup.device), ", this worker on ",
             name_of(device.kind()), ": their log-probs would differ");
  context_.set_numerics(setup.numerics);
  if (setup.lora.r > 0) model_->add_lora(setup.lora);
  model_->allocate(context_, setup.dtype, false);
  context_.zero(model_->flat_values());
  if (!setup.tokenizer.empty()) tokenizer_ = tokenizer_of(setup.tokenizer);
  layout_ = WeightLayout::of(*model_);
  waiting_ = Buffer(device, static_cast<size_t>(layout_.frozen_bytes + layout_.trained_bytes), MemoryKind::pinned);
  digests_.resize(static_cast<size_t>(layout_.num_blocks()));
  engine_ = std::make_unique<Engine>(context_, *model_, tokenizer_ ? &*tokenizer_ : nullptr, setup.engine);
  loop_ = std::make_unique<AsyncEngine>(*engine_, most_replies);
}

void WorkerModel::put(int64_t block, std::string_view bytes, const Digest& digest) {
  HONE_CHECK(block >= 0 && block < layout_.num_blocks(), "block ", block, " of ", layout_.num_blocks());
  const auto [offset, size] = layout_.block(block);
  HONE_CHECK(std::ssize(bytes) == size, "block ", block, " has ", size, " bytes, ", bytes.size(), " came");
  std::memcpy(static_cast<char*>(waiting_.data()) + offset, bytes.data(), bytes.size());
  digests_[static_cast<size_t>(block)] = digest;
  fresh_.push_back(block);
}

std::vector<int64_t> WorkerModel::missing(std::span<const Digest> digests) const {
  HONE_CHECK(digests.size() == digests_.size() || std::ssize(digests) == layout_.num_frozen(), digests.size(),
             " digests came of ", digests_.size(), " blocks");
  std::vector<int64_t> out;
  for (size_t i = 0; i < digests.size(); ++i)
    if (digests_[i] != digests[i]) out.push_back(static_cast<int64_t>(i));
  return out;
}

Tensor WorkerModel::direct_buffer() {
  if (landing_.size() == 0) landing_ = Buffer(device_, static_cast<size_t>(layout_.trained_bytes));
  return {landing_.data(), DType::u8, device_.kind(), {layout_.trained_bytes}};
}

void WorkerModel::copy_blocks(bool landed) {
  char* const values = static_cast<char*>(model_->flat_values().data);
  std::ranges::sort(fresh_);
  for (auto next = fresh_.begin(); next != fresh_.end();) {  // those that follow each other go as one
    const int64_t begin = layout_.block(*next).offset;
    int64_t end = begin;
    for (; next != fresh_.end() && layout_.block(*next).offset <= end; ++next)
      end = layout_.block(*next).offset + layout_.block(*next).bytes;
    context_.copy({values + begin, DType::u8, device_.kind(), {end - begin}},
                  {static_cast<char*>(waiting_.data()) + begin, DType::u8, DeviceKind::cpu, {end - begin}});
  }
  fresh_.clear();
  if (landed) {
    context_.copy({values + layout_.frozen_bytes, DType::u8, device_.kind(), {layout_.trained_bytes}}, direct_buffer());
    for (int64_t i = layout_.num_frozen(); i < layout_.num_blocks(); ++i) digests_[static_cast<size_t>(i)].reset();
  }
  context_.synchronize();
}

void WorkerModel::commit(int64_t version, bool landed) {
  try {
    loop_->run_between_steps([&](Engine& engine) {
      copy_blocks(landed);
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
