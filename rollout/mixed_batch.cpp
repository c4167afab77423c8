#include "rollout/mixed_batch.h"

#include <algorithm>

#include "model/forward.h"
#include "rollout/paged_batch.h"
#include "rollout/sampling_state.h"

namespace hone {
namespace {

// Prompt tokens whose log-probs are asked for, and the rows of the pass that tell them.
struct PromptScores {
  struct SequencePosition {
    RequestState* ticket;
    size_t position;
  };
  std::vector<SequencePosition> places;
  std::vector<int32_t> rows, ids;
  int64_t top_logprobs = 0;

  void add(const Sequence& sequence, int64_t count, int32_t first_row) {
    RequestState& ticket = *sequence.ticket;
    if (sequence.forked || !ticket.request.prompt_logprobs) return;
    top_logprobs = std::max(top_logprobs, ticket.request.top_logprobs);
    for (int64_t i = 0; i < count && sequence.computed + i + 1 < static_cast<int64_t>(sequence.tokens.size()); ++i) {
      const auto position = static_cast<size_t>(sequence.computed + i + 1);
      places.push_back({&ticket, position});
      rows.push_back(first_row + static_cast<int32_t>(i));
      ids.push_back(sequence.tokens[position]);
    }
  }
  // Every reply of a request has them.
  void write(const PromptLogprobs& scored) const {
    for (size_t i = 0; i < places.size(); ++i) {
      const auto& [ticket, position] = places[i];
      const auto wanted = static_cast<size_t>(ticket->request.top_logprobs);
      for (CompletionOutput& reply : ticket->replies) {
        reply.prompt_logp[position] = scored.logp[i];
        if (wanted == 0) continue;
        const auto& top = scored.top_logprobs[i];
        reply.prompt_top_logprobs[position].assign(
            top.begin(), top.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, top.size())));
      }
    }
  }
};

}  // namespace

MixedBatch::Result MixedBatch::run(std::span<const Scheduler::ScheduledSequence> parts) {
  Result out;
  std::vector<int32_t> rows;  // of the pass: first those drawn from, then those that score prompts
  std::vector<SamplingState> draws;
  PromptScores scores;
  int32_t row = 0;
  for (const Scheduler::ScheduledSequence& part : parts) {
    const Sequence& sequence = *part.sequence;
    scores.add(sequence, part.count, row);
    const int32_t last = row + static_cast<int32_t>(part.count) - 1;
    row += static_cast<int32_t>(part.width());
    if (!part.draws()) continue;
    const auto draw_after = [&](int32_t at, SamplingState by) {
      rows.push_back(at);
      draws.push_back(std::move(by));
    };
    const int64_t first = sequence.forked ? sequence.reply : 0,
                  end = sequence.forked ? first + 1 : sequence.ticket->request.n;
    for (int64_t reply = first; reply < end; ++reply) {
      out.draws.push_back({&part, reply, rows.size()});
      draw_after(last, sampling_state(sequence, reply));
    }
    for (size_t i = 0; i < part.proposed.size(); ++i)
      draw_after(last + 1 + static_cast<int32_t>(i), next_sampling_state(draws.back(), part.proposed[i]));
  }
  const auto drawn = static_cast<int64_t>(rows.size()), scored = static_cast<int64_t>(scores.rows.size());
  rows.insert(rows.end(), scores.rows.begin(), scores.rows.end());

  ScratchScope scratch(context_);
  staging_.release({});
  const PagedBatch paged(context_, staging_, planes_, parts, model_.shape().vocab_size);
  clock_.begin();
  const Tensor hidden = infer(context_, model_, paged.batch, upload(context_, staging_, rows), &paged.view);
  if (drawn > 0) out.drawn = draw(context_, model_, hidden.rows(0, drawn), draws);
  if (scored > 0)
    scores.write(prompt_logprobs(context_, model_, hidden.rows(drawn, scored), scores.ids, scores.top_logprobs));
  clock_.end();
  while (drawn + scored > 0 && !clock_.all_read()) clock_.read();
  return out;
}

}  // namespace hone
