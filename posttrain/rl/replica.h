#pragma once
// Replica: a sampler that reads a copy of the learner's weights, so that replies are written while the learner learns.
#include <functional>
#include <memory>
#include <string>

#include "posttrain/rl/weight_queue.h"
#include "rollout/backend.h"

namespace hone {

// Of the thread that makes it: on a GPU a thread's device is its own state.
class ReplicaBackend final : public GenerationBackend {
 public:
  using Make = std::function<std::unique_ptr<GenerationBackend>(Context&, Model&)>;
  // A copy of the learner's model as it is now, on the learner's device, or on one of its own where `device` names one;
  // `make` gives the sampler that reads it. The learner must not change its weights until this returns.
  ReplicaBackend(Context& learner_context, Model& learner, WeightQueue& weights, const std::string& device,
                 const Make& make);

  uint64_t submit(GenerationRequest request, Engine::OnFinish on_finish) override {
    return sampler_->submit(std::move(request), std::move(on_finish));
  }
  void cancel(uint64_t ticket) override { sampler_->cancel(ticket); }
  bool step() override { return sampler_->step(); }
  // Takes this version from the queue, or the oldest newer one there is.
  void set_policy_version(int64_t version) override {
    sampler_->set_policy_version(weights_.pop(version, context_, *model_));
  }
  int64_t version() const override { return sampler_->version(); }
  Metrics metrics() override { return sampler_->metrics(); }

 private:
  WeightQueue& weights_;
  std::unique_ptr<Device> device_;  // its own, if any
  Context context_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<GenerationBackend> sampler_;
};

}  // namespace hone
