#pragma once
// WorkerPool: a sampler whose replies are written by workers elsewhere (rollout/remote/worker.h). With the learner's
// own arithmetic a reply has the bits that the engine beside the learner would give it, whichever worker writes it and
// however often that takes.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rollout/backend.h"
#include "rollout/remote/config.h"
#include "rollout/remote/dispatcher.h"

namespace hone {

class WorkerLink;

class WorkerPool final : public GenerationBackend {
 public:
  // The learner's weights as they were at this version or, where newer ones are there as well, at the oldest of those.
  using Weights = std::function<std::shared_ptr<const WeightSnapshot>(int64_t version)>;
  // Waits until each worker has joined, or has failed to, for ten seconds at most. The device is the learner's; it
  // outlives the pool.
  WorkerPool(const WorkerPoolConfig& config, const WorkerSetup& setup, Device& device, Weights weights);
  ~WorkerPool() override;

  uint64_t submit(GenerationRequest request, Engine::OnFinish on_finish) override {
    return dispatcher_.submit(std::move(request), std::move(on_finish));
  }
  void cancel(uint64_t ticket) override { dispatcher_.cancel(ticket); }
  bool step() override { return dispatcher_.step(); }
  void set_policy_version(int64_t version) override;
  int64_t version() const override { return version_; }
  Metrics metrics() override { return dispatcher_.metrics(); }

 private:
  std::optional<Tokenizer> tokenizer_;
  Dispatcher dispatcher_;
  Weights weights_;
  int64_t version_ = 0;
  std::vector<std::unique_ptr<WorkerLink>> links_;
};

}  // namespace hone
