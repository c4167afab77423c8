#pragma once
// GenerationBackend: generates the completions of an RL run: an engine in the learner's process, or remote workers. A
// completion depends on its prompt, sampling parameters, request id and the weights. It never depends on the backend or
// on the worker that generates it.
#include "core/io/metrics.h"
#include "rollout/engine.h"

namespace hone {

// One thread calls all functions.
class GenerationBackend {
 public:
  virtual ~GenerationBackend() = default;
  // Queues the request and returns a ticket for cancel(). step() calls on_finish once, unless the request is cancelled
  // first. A request that cannot be served finishes with n failed completions.
  virtual uint64_t submit(GenerationRequest request, Engine::OnFinish on_finish) = 0;
  virtual void cancel(uint64_t ticket) = 0;
  // Advances the submitted requests and calls on_finish of those that are done. If none is, waits well below a second.
  // Returns false when no request is left. Throws if the backend can generate no more.
  virtual bool step() = 0;
  // Declares that the learner's current weights are `version`. Requests that start later are sampled from them. Running
  // sequences continue: their KV cache is recomputed first, and CompletionOutput::versions has the version of each
  // token.
  virtual void set_policy_version(int64_t version) = 0;
  virtual int64_t version() const = 0;  // the last one set; 0 before
  // Gives memory on the learner's device back until the next request (Engine::rest). No request may be in flight. Does
  // nothing if the backend is elsewhere.
  virtual void rest() {}
  // Metrics since the last call, under rollout/.
  virtual Metrics metrics() = 0;
};

// An engine that samples from the learner's own weights. They share the memory, so that set_policy_version() copies
// nothing: a change of the model between two steps is what the next step samples from.
class LocalBackend final : public GenerationBackend {
 public:
  // The context, model and tokenizer belong to the caller and must outlive this object.
  LocalBackend(Context& context, Model& model, const Tokenizer& tokenizer, const EngineConfig& config)
      : engine_(context, model, &tokenizer, config) {}
  uint64_t submit(GenerationRequest request, Engine::OnFinish on_finish) override {
    prompt_tokens_ += std::ssize(request.prompt);
    return engine_.submit(std::move(request), std::move(on_finish));
  }
  void cancel(uint64_t ticket) override { engine_.cancel(ticket); }
  bool step() override { return engine_.step(); }
  void set_policy_version(int64_t version) override { engine_.set_policy_version(version, true); }
  int64_t version() const override { return engine_.version(); }
  void rest() override { engine_.rest(); }
  Metrics metrics() override;

 private:
  Engine engine_;
  EngineStats before_;
  int64_t prompt_tokens_ = 0;  // of requests since the last metrics()
};

}  // namespace hone
