#pragma once
// Moves new weights to a sampler on another thread. WeightQueue holds versions of the learner's weights.
// ReplicaBackend samples with a copy of the learner's model and updates it from the queue.
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "core/device/buffer_pool.h"
#include "model/model.h"
#include "rollout/backend.h"

namespace hone {

// Two threads: the learner pushes, the sampler takes. Neither waits for the other.
class WeightQueue {
 public:
  enum class Keep : uint8_t { all, newest };
  // context and model are the learner's and must outlive this object. The queue holds the trained parameters; with
  // adapters, only the adapters.
  WeightQueue(Context& context, Model& model, Keep keep)
      : context_(context), model_(model), keep_(keep), room_(context.device(), MemoryKind::device) {}

  // The learner's thread: keeps a copy of the current weights as this version. Versions increase.
  void push(int64_t version);
  struct Kept {
    int64_t version = 0;
    std::shared_ptr<const Buffer> bytes;  // on the learner's device; returns to the pool with the last reference
  };
  // The sampler's thread: the oldest kept version of `version` or more. The queue drops it and all before it.
  Kept take(int64_t version);
  // take(), then copies the weights into `copy`, which has the shape of the learner's model and may be on another
  // device. Returns the version.
  int64_t pop(int64_t version, Context& context, Model& copy);

 private:
  Context& context_;
  Model& model_;
  Keep keep_;
  BufferPool room_;
  std::mutex mutex_;
  std::deque<Kept> kept_;  // oldest first
};

// Samples with a copy of the learner's weights, so that completions are generated while the learner trains. Only the
// thread that constructs it may use it: on a GPU the current device is state of a thread.
class ReplicaBackend final : public GenerationBackend {
 public:
  using Make = std::function<std::unique_ptr<GenerationBackend>(Context&, Model&)>;
  // Copies the learner's model to `device`; empty: on the learner's device. `make` makes the backend that reads the
  // copy. The learner must not change its weights until this returns.
  ReplicaBackend(Context& learner_context, Model& learner, WeightQueue& weights, const std::string& device,
                 const Make& make);

  uint64_t submit(GenerationRequest request, Engine::OnFinish on_finish) override {
    return sampler_->submit(std::move(request), std::move(on_finish));
  }
  void cancel(uint64_t ticket) override { sampler_->cancel(ticket); }
  bool step() override { return sampler_->step(); }
  // Takes this version from the queue, or the oldest newer one.
  void set_policy_version(int64_t version) override {
    sampler_->set_policy_version(weights_.pop(version, context_, *model_));
  }
  int64_t version() const override { return sampler_->version(); }
  Metrics metrics() override { return sampler_->metrics(); }

 private:
  WeightQueue& weights_;
  std::unique_ptr<Device> device_;  // null: the learner's
  Context context_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<GenerationBackend> sampler_;
};

}  // namespace hone
