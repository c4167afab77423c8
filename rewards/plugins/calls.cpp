#include "rewards/plugins/calls.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "rewards/plugins/text.h"

namespace hone {

void PluginCalls::fields(Fields& f) {
  f("timeout", timeout, "time limit of a call in seconds");
  f("retries", retries, "retries of a completion whose call failed, one completion per call");
  f("retry_delay", retry_delay, "seconds before each retry");
  f("batch_size", batch_size, "maximum completions per call; 0 = the entire group");
  f("workers", workers, "concurrent calls");
  f.require("timeout", timeout > 0 && timeout <= 86400, "timeout must be in (0, 86400]");
  f.require("retries", retries >= 0 && retries <= 100, "retries must be in [0, 100]");
  f.require("retry_delay", retry_delay >= 0 && retry_delay <= 3600, "retry_delay must be in [0, 3600]");
  f.require("batch_size", batch_size >= 0, "batch_size must be 0 or more");
  f.require("workers", workers > 0 && workers <= 1024, "workers must be in [1, 1024]");
}

std::string PluginCalls::attempt(size_t begin, std::span<RewardScore> scores, const Call& call) const {
  try {
    call(begin, scores);
    consecutive_failures_ = 0;
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

void PluginCalls::score(std::span<RewardScore> scores, const Call& call) const {
  // After this number of failed completions in a row there are no retries until a call succeeds, so that a dead plug-in
  // does not stall the run.
  constexpr int max_consecutive_failures = 4;
  const size_t batch = batch_size > 0 ? static_cast<size_t>(batch_size) : std::max<size_t>(1, scores.size());
  for (size_t begin = 0; begin < scores.size(); begin += batch) {
    const std::span<RewardScore> some = scores.subspan(begin, std::min(batch, scores.size() - begin));
    std::string problem = attempt(begin, some, call);
    if (problem.empty()) continue;
    for (size_t i = 0; i < some.size(); ++i) {
      std::string why = problem;
      for (int64_t again = 0; again < retries && !why.empty() && consecutive_failures_ < max_consecutive_failures;
           ++again) {
        std::this_thread::sleep_for(std::chrono::duration<double>(retry_delay));
        why = attempt(begin + i, some.subspan(i, 1), call);
      }
      if (why.empty()) continue;
      some[i] = failed_score(plain_text(why));
      ++consecutive_failures_;
    }
  }
}

}  // namespace hone
