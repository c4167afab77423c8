#pragma once
// How a plug-in that may break is called: in batches, again where a call failed, and never for longer than its settings
// say.
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/config/fields.h"
#include "rewards/reward.h"

namespace hone {

class PluginCalls {
 public:
  void fields(Fields& f);

  // Gives every completion [0, scores.size()) of a group a score. call(begin, scores) asks for scores.size()
  // completions from `begin` on and throws an Error when the call as a whole failed. Completions whose call failed are
  // asked for again, each by itself; those that never got a score are failed ones. What a call holds depends on
  // batch_size alone, never on timing. From any thread.
  using Call = std::function<void(size_t begin, std::span<RewardScore> scores)>;
  void score(std::span<RewardScore> scores, const Call& call) const;

  double timeout = 30;     // seconds that a call may take
  int64_t retries = 2;     // further attempts for a completion, each by itself
  double retry_delay = 0;  // seconds before each
  int64_t batch_size = 0;  // completions of a call at most; 0 = all of a group
  int64_t workers = 4;     // calls at once

 private:
  std::string attempt(size_t begin, std::span<RewardScore> scores, const Call& call) const;  // why it failed, or ""
  mutable std::atomic<int> given_up_{0};  // completions in a row that never got a score
};

}  // namespace hone
