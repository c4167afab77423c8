#pragma once
// The rewards in a file of `hone objective`.
#include <string>
#include <string_view>
#include <vector>

#include "data/sample.h"

namespace hone {

// One or several rewards of each sequence, in one of three forms, with null where a reward does not apply:
//   "rewards": [1, 0]                                 one reward, named "reward"
//   "rewards": [[1, 0.5], [0, null]]                  several of each sequence, named "0", "1", ...
//   "rewards": {"answer": [1, 0], "format": [0.5, null]}
// Their weights are the field "reward_weights", or the key of that name in "config" (TRL's place): a list in the order
// of the rewards, or an object by name; 1 if absent.
class GivenRewards {
 public:
  // An Error names `source` and the field.
  GivenRewards(const Json& input, size_t num_sequences, std::string_view source);

  const Metrics& weights() const { return weights_; }
  // Writes reward and reward_parts of sequence s. A sample without any reward is not scored.
  void write(size_t s, Sample& sample) const;

 private:
  void read_weights(const Json& weights, std::string_view source);

  std::vector<std::string> names_;
  std::vector<Metrics> by_sequence_;
  Metrics weights_;
};

}  // namespace hone
