#pragma once
// How many completions a second rewards judge on one core.
#include <string>
#include <vector>

namespace hone {

struct RewardBench {
  std::string reward, what;  // what is judged: "the answer is 18" after some sentences, a boxed fraction, ...
  double per_second = 0;
};

// Each case for `seconds` of this thread's time; those whose reward's or text's name holds `filter`.
std::vector<RewardBench> bench_rewards(const std::string& filter, double seconds);

}  // namespace hone
