#pragma once
// Calls a plug-in that may fail: in batches, with retries for failed calls, and with a timeout.
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

  // Scores every completion [0, scores.size()) of a group. call(begin, scores) scores scores.size() completions from
  // index `begin` and throws an Error if the entire call fails. Completions of a failed call are retried one by
  // one; completions without a score after all retries get a failed score. The contents of a call depend only on
  // batch_size, never on timing. Any thread may call it.
  using Call = std::function<void(size_t begin, std::span<RewardScore> scores)>;
  void score(std::span<RewardScore> scores, const Call& call) const;

  double timeout = 30;     // seconds per call
  int64_t retries = 2;     // retries of a completion whose call failed, one completion per call
  double retry_delay = 0;  // seconds before each retry
  int64_t batch_size = 0;  // maximum completions per call; 0 = the entire group
  int64_t workers = 4;     // concurrent calls

 private:
  std::string attempt(size_t begin, std::span<RewardScore> scores, const Call& call) const;  // error text, or ""
  mutable std::atomic<int> consecutive_failures_{0};  // completions without a score
};

}  // namespace hone
