#pragma once
// GenerationBackend: where replies come from, be it the engine beside the learner or workers elsewhere. What a request
// gets depends on its prompt, sampling, id and the weights alone, not on which sampler, or which worker of several,
// wrote it.
#include "core/io/metrics.h"
#include "rollout/engine.h"

namespace hone {

// One thread.
class GenerationBackend {
 public:
  virtual ~GenerationBackend() = default;
  // Queues it; on_finish is called once, from step(), unless the request is cancelled first. A request that cannot be
  // served is n failed replies. Returns a ticket for cancel().
  virtual uint64_t submit(GenerationRequest request, Engine::OnFinish on_finish) = 0;
  virtual void cancel(uint64_t ticket) = 0;
  // Goes on with what was submitted and calls back what has finished; waits a moment (well below a second) where
  // nothing has. False when nothing is left to do. An Error where no reply can be had any more.
  virtual bool step() = 0;
  // The learner's weights, as they are now, are `version`: what begins later is drawn from them. What is being written
  // goes on, its keys and values computed again first, and its tokens say which version drew each (Reply::versions).
  virtual void set_policy_version(int64_t version) = 0;
  virtual int64_t version() const = 0;  // the last that was published; 0 before
  // Of the time since the last call, under rollout/.
  virtual Metrics metrics() = 0;
};

// The engine beside the learner: they share the weights' memory, so that publishing copies none. What the model is
// changed into between steps is what the next step draws from.
class LocalBackend final : public GenerationBackend {
 public:
  // Everything is the caller's and must outlive it.
  LocalBackend(Context& context, Model& model, const Tokenizer& tokenizer, const EngineConfig& config)
      : engine_(context, model, &tokenizer, config) {}
  uint64_t submit(GenerationRequest request, Engine::OnFinish on_finish) override {
    return engine_.submit(std::move(request), std::move(on_finish));
  }
  void cancel(uint64_t ticket) override { engine_.cancel(ticket); }
  bool step() override { return engine_.step(); }
  void set_policy_version(int64_t version) override { engine_.set_policy_version(version, true); }
  int64_t version() const override { return engine_.version(); }
  Metrics metrics() override;

 private:
  Engine engine_;
  EngineStats before_;
};

}  // namespace hone
