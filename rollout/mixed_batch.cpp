#include "rollout/mixed_batch.h"

#include <algorithm>

#include "core/base/stopwatch.h"
#include "kernels/elementwise/embedding.h"
#include "model/forward.h"
#include "rollout/paged_batch.h"
#include "rollout/proposer.h"
#include "rollout/sampling_state.h"

namespace hone {
namespace {

// Prompt tokens whose log-probs are requested, and the rows of the pass that give them.
struct PromptLogprobRows {
  struct SequencePosition {
    RequestState* state;
    size_t position;
  };
  std::vector<SequencePosition> positions;
  std::vector<int32_t> rows, ids;
  int64_t top_logprobs = 0;

  void add(const Sequence& sequence, int64_t count, int32_t first_row) {
    RequestState& state = *sequence.request_state;
    if (sequence.forked || !state.request.prompt_logprobs) return;
    top_logprobs = std::max(top_logprobs, state.request.top_logprobs);
    for (int64_t i = 0; i < count && sequence.computed + i + 1 < static_cast<int64_t>(sequence.tokens.size()); ++i) {
      const auto position = static_cast<size_t>(sequence.computed + i + 1);
      positions.push_back({&state, position});
      rows.push_back(first_row + static_cast<int32_t>(i));
      ids.push_back(sequence.tokens[position]);
    }
  }
  // Writes them to every completion of the request.
  void write(const PromptLogprobs& logprobs) const {
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto& [state, position] = positions[i];
      const auto num_top = static_cast<size_t>(state->request.top_logprobs);
      for (CompletionOutput& completion : state->completions) {
        completion.prompt_logp[position] = logprobs.logp[i];
        if (num_top == 0) continue;
        const auto& top = logprobs.top_logprobs[i];
        completion.prompt_top_logprobs[position].assign(
            top.begin(), top.begin() + static_cast<std::ptrdiff_t>(std::min(num_top, top.size())));
      }
    }
  }
};

}  // namespace

const MaskTable& MixedBatch::masks_of(const Result& result) {
  const Stopwatch clock;
  masks_.clear();
  for (const SampledRow& row : result.rows) masks_.add(*row.part->sequence, row.part->draft);
  mask_seconds_ += clock.seconds();
  masked_rows_ += masks_.num_masks();
  return masks_;
}

// Returns hidden [R, D] of `rows`. If the proposer reads hidden states, those of all rows are computed.
Tensor MixedBatch::hidden_of(const PagedBatch& paged, std::span<const int32_t> rows,
                             std::span<const Scheduler::ScheduledSequence> parts, Proposer* proposer) {
  const Tensor chosen = upload(context_, staging_, rows);
  if (!proposer || !proposer->reads_hidden()) return infer(context_, model_, paged.batch, chosen, &paged.view);
  const Tensor all = infer(context_, model_, paged.batch, {}, &paged.view);
  proposer->observe(parts, all);
  const Tensor out = context_.scratch().take(all.dtype, {std::ssize(rows), all.dim(1)});
  if (!rows.empty()) gather_rows(context_, out, all, chosen);
  return out;
}

MixedBatch::Result MixedBatch::run(std::span<const Scheduler::ScheduledSequence> parts, Proposer* proposer) {
  Result out;
  std::vector<int32_t> rows;  // of the pass: first the sampled rows, then the rows for prompt log-probs
  std::vector<SamplingState> sampling_states;
  PromptLogprobRows prompt_rows;
  int32_t row = 0;
  for (const Scheduler::ScheduledSequence& part : parts) {
    const Sequence& sequence = *part.sequence;
    prompt_rows.add(sequence, part.count, row);
    const int32_t last = row + static_cast<int32_t>(part.count) - 1;
    row += static_cast<int32_t>(part.width());
    if (!part.samples_token()) continue;
    const auto sample_at = [&](int32_t at, SamplingState state) {
      rows.push_back(at);
      sampling_states.push_back(std::move(state));
    };
    const int64_t first = sequence.forked ? sequence.completion_index : 0,
                  end = sequence.forked ? first + 1 : sequence.request_state->request.n;
    for (int64_t index = first; index < end; ++index) {
      out.rows.push_back({&part, index, rows.size()});
      sample_at(last, sampling_state(sequence, index));
    }
    for (size_t i = 0; i < part.draft.size(); ++i)
      sample_at(last + 1 + static_cast<int32_t>(i), next_sampling_state(sampling_states.back(), part.draft[i]));
  }
  const auto num_sampled = static_cast<int64_t>(rows.size()),
             num_scored = static_cast<int64_t>(prompt_rows.rows.size());
  rows.insert(rows.end(), prompt_rows.rows.begin(), prompt_rows.rows.end());

  ScratchScope scratch(context_);
  staging_.release({});
  const PagedBatch paged(context_, staging_, storage_, parts, model_.shape().vocab_size);
  timer_.begin();
  const Tensor hidden = hidden_of(paged, rows, parts, proposer);
  if (num_sampled > 0) {
    const MaskTable& masks = masks_of(out);  // while the device computes the hidden states
    out.sampled = sample_and_wait(context_, model_, hidden.rows(0, num_sampled), sampling_states, &masks);
  }
  if (num_scored > 0)
    prompt_rows.write(prompt_logprobs(context_, model_, hidden.rows(num_sampled, num_scored), prompt_rows.ids,
                                      prompt_rows.top_logprobs));
  timer_.end();
  while (num_sampled + num_scored > 0 && !timer_.all_read()) timer_.read();
  return out;
}

void MixedBatch::check_model() {
  ScratchScope scratch(context_);
  const std::vector<int32_t> token{0}, last{0};
  const std::vector<BatchPart> part{{token}};
  const Batch batch = pack_batch(context_, context_.scratch(), part);
  const std::vector<SamplingState> plain(1);
  sample_and_wait(context_, model_, infer(context_, model_, batch, upload(context_, context_.scratch(), last), nullptr),
                  plain);
}

}  // namespace hone
