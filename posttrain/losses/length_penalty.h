#pragma once
// The length reward of Kimi k1.5 (Kimi Team 2025, section 2.3.3), relative to the other completions of the prompt.
#include <span>
#include <vector>

#include "train/objective.h"

namespace hone {

// With l the tokens of a completion, and l_min and l_max those of the group's shortest and longest one:
// lambda = 0.5 - (l - l_min) / (l_max - l_min). The length reward is lambda for a correct completion and min(0, lambda)
// for another one; it is 0 if all have one length. A trajectory's tokens are those of the policy.
struct LengthPenalty {
  double weight = 0;     // of the length reward in the reward
  double threshold = 1;  // completions with a reward of at least this are correct

  void fields(Fields& f);
  bool on() const { return weight > 0; }
  // One for each sample. They are the scored samples of one group.
  std::vector<double> rewards(std::span<const Sample* const> samples) const;
};

// Adds the length rewards to the rewards of scored samples, and gives them the reward part "length_penalty", for as
// long as it lives: the reward in the log remains the task's. Adds rewards/length_penalty/mean.
class ShapedRewards {
 public:
  static constexpr const char* part = "length_penalty";

  ShapedRewards(const LengthPenalty& penalty, std::span<Group> groups, MetricSums& metrics);
  ~ShapedRewards();
  ShapedRewards(const ShapedRewards&) = delete;
  ShapedRewards& operator=(const ShapedRewards&) = delete;

 private:
  struct Original {
    Sample* sample;
    double reward;
    Metrics parts;
  };
  std::vector<Original> originals_;
};

}  // namespace hone
