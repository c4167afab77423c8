// The soft overlong punishment (Yu et al. 2025, "DAPO", eq. 13): 0 up to L_max - L_cache tokens, falling linearly to -1
// at L_max, -1 beyond. It is added to a reward for correctness.
#include <algorithm>

#include "rewards/reward.h"

namespace hone {

namespace {

class Overlong : public Reward {
 public:
  void fields(Fields& f) override {
    f("max_completion_length", max_length_, "L_max in tokens: the penalty is -1 from this length on");
    f("soft_punish_cache", cache_, "L_cache in tokens: the penalty starts this far below L_max");
  }
  void prepare() override {
    HONE_CHECK(max_length_ > 0, "max_completion_length is ", max_length_, "; it must be positive");
    HONE_CHECK(cache_ > 0 && cache_ <= max_length_, "soft_punish_cache is ", cache_,
               "; it must be between 1 and max_completion_length (", max_length_, ")");
  }
  RewardScore score(const Task&, const Completion& completion) const override {
    if (completion.ids.empty() && !completion.text.empty()) return {.note = "no token ids", .skipped = true};
    const int64_t length = static_cast<int64_t>(completion.ids.size()), over = length - (max_length_ - cache_);
    if (over <= 0) return {.score = 0};
    return {.score = -std::min(1.0, static_cast<double>(over) / static_cast<double>(cache_)),
            .note = concat(length, " tokens")};
  }

 private:
  int64_t max_length_ = 20480, cache_ = 4096;  // the values of the paper
};

[[maybe_unused]] const bool added = rewards().add("overlong", [] { return std::unique_ptr<Reward>(new Overlong); });

}  // namespace

}  // namespace hone
