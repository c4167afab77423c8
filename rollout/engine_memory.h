#pragma once
// EngineMemory: what an engine holds on its device, and frees while it rests (Engine::rest).
#include <memory>
#include <optional>

#include "model/quantized_model.h"
#include "rollout/adapters.h"
#include "rollout/proposer.h"

namespace hone {

// One thread.
class EngineMemory {
 public:
  // All arguments must outlive this object.
  EngineMemory(Context& context, Model& source, const Tokenizer* tokenizer, const EngineConfig& config);
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;

  Model& model() { return quantized_ ? quantized_->model() : source_; }  // samples completions
  KvCache& cache() { return cache_; }
  ModelPasses& passes() { return *passes_; }        // of model()
  Proposer* proposer() { return proposer_.get(); }  // null: none

  // The source's weights changed.
  void invalidate();
  // Frees everything but the weights of a draft model. No sequence may hold a KV block. Waits for the device. Throws an
  // Error if the quantized weights are the only ones.
  void free();
  // Takes the memory again, elsewhere. Throws if the device has too little; another call tries again. Does nothing if
  // nothing is free.
  void allocate();
  bool is_free() const { return free_; }

 private:
  Context& context_;
  Model& source_;
  const bool owns_weights_;  // the source has no matrices
  const std::unique_ptr<QuantizedModel> quantized_;
  KvCache cache_;
  std::optional<ModelPasses> passes_;  // always there; new ones have no memory
  const std::unique_ptr<Proposer> proposer_;
  bool free_ = false;
};

}  // namespace hone
