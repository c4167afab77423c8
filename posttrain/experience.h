#pragma once
// Experience: one round of judged groups, and how it is cut into optimizer updates.
#include <cstdint>
#include <vector>

#include "core/model/objective.h"
#include "core/sample.h"
#include "posttrain/run_log.h"

namespace hone {

struct Experience {
  explicit Experience(std::vector<Group> judged);

  std::vector<Group> groups;

  // Every sample, group by group.
  std::vector<const Sample*> samples() const;
  void set_values(std::vector<std::vector<float>> values);  // in samples()' order
  // One pass: the samples in an order drawn from (seed, pass), cut into `count` updates; groups stay whole and in order where `per` is pair. A single
  // update keeps the samples' own order.
  std::vector<std::vector<const Sample*>> mini_batches(int64_t count, Per per, uint64_t seed, uint64_t pass) const;

  // TRL's: reward, reward_std, frac_reward_zero_std, rewards/<name>/mean, completions/mean_length, min_length, max_length, clipped_ratio.
  Metrics metrics() const;
  void log_samples(RunLog& log, int64_t step, int64_t count) const;
};

}  // namespace hone
