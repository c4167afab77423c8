#pragma once
// RolloutBatch: the scored groups of one training step, and how they are cut into optimizer updates.
#include <cstdint>
#include <vector>

#include "core/io/json.h"
#include "data/sample.h"
#include "model/model.h"
#include "train/objective.h"

namespace hone {

struct RolloutBatch {
  // Replies that could not be sampled are left out, and groups without a reply; an Error if nothing is left.
  explicit RolloutBatch(std::vector<Group> judged);

  std::vector<Group> groups;

  // Every sample, group by group.
  std::vector<const Sample*> samples() const;
  void set_values(std::vector<std::vector<float>> values);  // in samples()' order
  // old_logp: under the model as it is now, when the round's epochs begin. What these very weights drew
  // (weight_version) by the learner's own arithmetic (Numerics::exact, and exact_sampler: EngineConfig::exact(), no
  // Sampling::distribution_changes()) has it already: its behavior_logp, bit for bit. Samples with a token of older
  // weights, or of other arithmetic, are scored.
  void set_old_logp(Context& context, Model& model, double temperature, int64_t weight_version,
                    bool exact_sampler = true);
  // One pass: the samples in an order drawn from (seed, pass), cut into `count` updates; groups stay whole and in order
  // where `unit` is pair. A single update keeps the samples' own order.
  std::vector<std::vector<const Sample*>> mini_batches(int64_t count, LossUnit unit, uint64_t seed,
                                                       uint64_t pass) const;

  // TRL's: reward and reward_std over all samples, frac_reward_zero_std over groups, rewards/<name>/{mean, std},
  // completions/{mean, min, max}_length, the same of the replies that ended by themselves as completions/{mean, min,
  // max}_terminated_length (0 if none did), completions/clipped_ratio; and the samples' counts. reward_group_std is the
  // mean over groups of the deviation within each. Unjudged samples have no part in what is about rewards. Deviations
  // are of n - 1.
  Metrics metrics() const;
  // Rows for samples.jsonl: the first `count` completions, group by group; all of them if count is -1. A row's prompt
  // is the text that the model read, special tokens included; a task of messages has these, too.
  std::vector<Json> sample_rows(int64_t step, int64_t count) const;
};

}  // namespace hone
