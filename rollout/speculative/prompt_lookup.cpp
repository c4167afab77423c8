#include "rollout/speculative/prompt_lookup.h"

#include <algorithm>

#include "rollout/proposer.h"

namespace hone {

std::span<const int32_t> prompt_lookup(std::span<const int32_t> tokens, int64_t min_match, int64_t max_match) {
  const int64_t size = std::ssize(tokens);
  int64_t best = min_match - 1, after = size;
  for (int64_t end = min_match; end < size && best < max_match; ++end) {
    const int64_t most = std::min(end, max_match);
    int64_t same = 0;
    while (same < most && tokens[static_cast<size_t>(end - 1 - same)] == tokens[static_cast<size_t>(size - 1 - same)])
      ++same;
    if (same > best) {
      best = same;
      after = end;
    }
  }
  return tokens.subspan(static_cast<size_t>(after));
}

namespace {

class PromptLookup : public Proposer {
 public:
  explicit PromptLookup(const SpeculativeConfig& config) : config_(config) {}

  void propose(std::span<Scheduler::ScheduledSequence> parts) override {
    for (Scheduler::ScheduledSequence& part : parts) {
      if (part.num_lookahead == 0) continue;
      const auto found = prompt_lookup(part.sequence->tokens, config_.prompt_lookup_min, config_.prompt_lookup_max);
      part.draft.assign(found.begin(), found.begin() + std::min(part.num_lookahead, std::ssize(found)));
    }
  }

 private:
  const SpeculativeConfig& config_;
};

[[maybe_unused]] const bool added = proposers().add("ngram", [](const ProposerContext& context) {
  return std::unique_ptr<Proposer>(new PromptLookup(context.config));
});

}  // namespace
}  // namespace hone
