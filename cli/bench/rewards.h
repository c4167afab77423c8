#pragma once
// Completions per second that rewards score on one core.
#include <string>
#include <vector>

namespace hone {

struct RewardBench {
  std::string reward, what;  // the scored text: "the answer is 18" after some sentences, a boxed fraction, ...
  double per_second = 0;
};

// Runs each case whose reward or text name contains `filter`, for `seconds` of this thread's time.
std::vector<RewardBench> bench_rewards(const std::string& filter, double seconds);

}  // namespace hone
