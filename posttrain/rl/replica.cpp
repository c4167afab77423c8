#include "posttrain/rl/replica.h"

namespace hone {

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
