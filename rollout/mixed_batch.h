#pragma once
// MixedBatch: one forward pass over scheduled sequences of any kind, prefill chunks and decodes together, with
// everything that a request may ask for. One thread.
#include "rollout/device_timer.h"
#include "rollout/sampler.h"
#include "rollout/scheduler.h"

namespace hone {

class Proposer;
struct PagedBatch;

class MixedBatch {
 public:
  MixedBatch(Context& context, Model& model, const KvStorage& storage)
      : context_(context),
        model_(model),
        storage_(storage),
        staging_(context.device()),
        timer_(context),
        masks_(model.shape().vocab_size) {}

  // Where the next token of a fully computed sequence was sampled: for its completion, or for one of the completions
  // that fork from a prompt. A row follows for each draft token, sampled as if the draft tokens before it were
  // accepted.
  struct SampledRow {
    const Scheduler::ScheduledSequence* part = nullptr;
    int64_t completion_index = 0;
    size_t row = 0;  // of Result::sampled
  };
  struct Result {
    std::vector<SampledRow> rows;
    SampledTokens sampled;
  };
  // Computes the parts' tokens, writes prompt log-probs to their completions, and samples. The caller advances
  // sequence->computed. proposer: observes the pass; null: none.
  Result run(std::span<const Scheduler::ScheduledSequence> parts, Proposer* proposer);
  // Throws if the model cannot sample even for a plain request: then no request is at fault.
  void check_model();
  // Device seconds up to the last pass that was waited for.
  double seconds() const { return timer_.seconds(); }
  // Host seconds of token masks, and the rows that had one.
  double mask_seconds() const { return mask_seconds_; }
  int64_t masked_rows() const { return masked_rows_; }

 private:
  const MaskTable& masks_of(const Result& result);
  Tensor hidden_of(const PagedBatch& paged, std::span<const int32_t> rows,
                   std::span<const Scheduler::ScheduledSequence> parts, Proposer* proposer);

  Context& context_;
  Model& model_;
  const KvStorage& storage_;
  Arena staging_;
  DeviceTimer timer_;
  MaskTable masks_;  // of the last pass
  double mask_seconds_ = 0;
  int64_t masked_rows_ = 0;
};

}  // namespace hone
