#pragma once
// The LoRA adapters that an engine serves beside its model. Each adapter is a model of its own that shares the engine's
// weights. A pass computes sequences of one adapter only, so that their arithmetic is that of the adapter served alone.
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "model/io/adapted_model.h"
#include "rollout/decode_loop.h"
#include "rollout/mixed_batch.h"

namespace hone {

// A model and what runs its passes.
struct ModelPasses {
  ModelPasses(Context& context, Model& pass_model, const KvStorage& storage)
      : model(pass_model), decoding(context, pass_model, storage), mixed(context, pass_model, storage) {}
  Model& model;
  DecodeLoop decoding;
  MixedBatch mixed;

  // What the passes took so far, as in EngineStats.
  struct Times {
    double prefill_seconds = 0, decode_seconds = 0, mask_seconds = 0;
    int64_t masked_rows = 0;
  };
  Times times() const;
  void add_times_since(const Times& before, EngineStats& stats) const;
};

struct AdapterPasses {
  AdapterPasses(Context& context, Model& base, const KvStorage& storage, const std::filesystem::path& folder)
      : adapted(context, base, folder), passes(context, adapted.model(), storage) {}
  AdaptedModel adapted;
  ModelPasses passes;
};

// The passes of the request's adapter, or of the model itself.
ModelPasses& passes_of(const RequestState& request, ModelPasses& own);

// One thread.
class Adapters {
 public:
  // Adds an adapter and returns its id, which is never used again.
  int64_t add(std::shared_ptr<AdapterPasses> adapter);
  // Requests that have the adapter keep it: its memory is freed with the last of them. Returns false if there is none.
  bool remove(int64_t id) { return adapters_.erase(id) > 0; }
  bool empty() const { return adapters_.empty(); }
  std::shared_ptr<AdapterPasses> find(int64_t id) const;  // nullptr if there is none

 private:
  int64_t last_id_ = 0;
  std::map<int64_t, std::shared_ptr<AdapterPasses>> adapters_;
};

// The parts of each adapter, in the order of their first parts.
std::vector<std::vector<Scheduler::ScheduledSequence>> parts_by_adapter(
    std::span<const Scheduler::ScheduledSequence> parts);

}  // namespace hone
