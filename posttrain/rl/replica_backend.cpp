#include "posttrain/rl/replica_backend.h"

#include <algorithm>

namespace hone {

static Tensor as_values(const Buffer& bytes, const Tensor& like) {
  return {bytes.data(), like.dtype, like.device, like.dims()};
}

void WeightQueue::push(int64_t version) {
  const Tensor values = model_.trainable_values();
  std::shared_ptr<Buffer> bytes = room_.take(values.bytes());
  context_.copy(as_values(*bytes, values), values);
  context_.synchronize();
  const std::lock_guard lock(mutex_);
  // Only after the copy: until then the other thread may take the version before.
  if (keep_ == Keep::newest) kept_.clear();
  kept_.push_back({.version = version, .bytes = std::move(bytes)});
}

WeightQueue::Kept WeightQueue::take(int64_t version) {
  const std::lock_guard lock(mutex_);
  kept_.erase(kept_.begin(), std::ranges::find_if(kept_, [&](const Kept& of) { return of.version >= version; }));
  HONE_CHECK(!kept_.empty(), "weight queue: version ", version, " was not kept");
  Kept out = std::move(kept_.front());
  kept_.pop_front();
  return out;
}

int64_t WeightQueue::pop(int64_t version, Context& context, Model& copy) {
  const Kept kept = take(version);
  const Tensor values = copy.trainable_values();
  HONE_CHECK(values.bytes() == kept.bytes->size(), "weight queue: the copy has ", values.bytes(),
             " bytes, the weights have ", kept.bytes->size());
  context.copy(values, as_values(*kept.bytes, values));
  context.synchronize();
  return kept.version;
}

ReplicaBackend::ReplicaBackend(Context& learner_context, Model& learner, WeightQueue& weights,
                               const std::string& device, const Make& make)
    : weights_(weights),
      device_(device.empty() ? nullptr : open_device(device)),
      context_(device_ ? *device_ : learner_context.device()),
      model_(learner.same_shape()) {
  context_.set_numerics(learner_context.numerics());
  model_->allocate(context_, learner.dtype(), false);
  context_.copy(model_->flat_values(), learner.flat_values());
  context_.synchronize();
  sampler_ = make(context_, *model_);
}

}  // namespace hone
