#pragma once
// WorkerPool: a generation backend of remote workers (rollout/remote/worker.h). With the learner's own arithmetic a
// completion has the bits that the learner's local engine would give it, whichever worker generates it and however
// often.
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

// One thread.
class WorkerPool final : public GenerationBackend {
 public:
  // Returns the learner's weights of `version`, or of the oldest newer version if there are newer ones already.
  using Weights = std::function<std::shared_ptr<const WeightSnapshot>(int64_t version)>;
  // Waits up to ten seconds until each worker has joined or failed to. `device` is the learner's and must outlive the
  // pool.
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
