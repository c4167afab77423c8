#pragma once
// RolloutBatch: the scored groups of one training step, and how they are cut into optimizer updates.
#include <cstdint>
#include <vector>

#include "core/comm/ranks.h"
#include "core/io/json.h"
#include "data/sample.h"
#include "model/model.h"
#include "train/objective.h"

namespace hone {

class RolloutBatch {
 public:
  // Drops completions that could not be sampled, and groups without completions. An Error if nothing is left.
  explicit RolloutBatch(std::vector<Group> scored_groups);

  // Of pairs, which may be none.
  static RolloutBatch of_pairs(std::vector<Group> pairs) {
    RolloutBatch out;
    out.groups = std::move(pairs);
    return out;
  }

  std::vector<Group> groups;

  // Every sample, group by group.
  std::vector<const Sample*> samples() const;
  void set_values(std::vector<std::vector<float>> values);  // in samples()' order
  // Writes old_logp: log-probs under the model as it is now, before the epochs. If exactly these weights sampled a
  // completion (weight_version) with the learner's arithmetic (Numerics::exact, and exact_sampler:
  // EngineConfig::exact() and no SamplingParams::distribution_changes()), its behavior_logp has the same bits and is
  // copied. The other samples take a scoring pass, which the ranks share.
  void set_old_logp(Context& context, Model& model, double temperature, int64_t weight_version,
                    bool exact_sampler = true, const Ranks& ranks = {});
  // Writes old_logp and old_entropy of all samples by a scoring pass, which the ranks share: log-probs and entropies
  // under the model as it is now.
  void set_old_entropy(Context& context, Model& model, double temperature, const Ranks& ranks = {});
  // One epoch: the samples in a random order of (seed, pass), cut into `count` updates. If `unit` is pair, groups stay
  // together and in order. A single update keeps the samples' own order. An update without samples is left out.
  std::vector<std::vector<const Sample*>> mini_batches(int64_t count, LossUnit unit, uint64_t seed,
                                                       uint64_t pass) const;

  // TRL's: reward and reward_std over all samples, frac_reward_zero_std over groups, rewards/<name>/{mean, std},
  // completions/{mean, min, max}_length, the same of completions that were not cut off as completions/{mean, min,
  // max}_terminated_length (0 if there are none), completions/clipped_ratio; and the samples' counts. reward_group_std
  // is the mean over groups of the deviation within each. Samples without a score do not count in metrics of rewards.
  // Deviations are those of n - 1.
  // Of each named source also prompts/SOURCE, reward/SOURCE, reward_std/SOURCE, frac_reward_zero_std/SOURCE and
  // completions/mean_length/SOURCE.
  Metrics metrics() const;
  // Of trajectories in an environment: the means env/turns (of the policy) and env/observation_tokens, and the counts
  // env/failed, env/truncated_observations and of those that ended by a limit (env/max_turns, ...).
  // Rows for samples.jsonl: the first `count` completions, group by group; all of them if count is -1. A row's prompt
  // is the text that the model read, including special tokens. The row of a task with messages has them, too.
  std::vector<Json> sample_rows(int64_t step, int64_t count) const;

 private:
  RolloutBatch() = default;

  Metrics dropped_counts_;  // of completions that could not be sampled
};

}  // namespace hone
