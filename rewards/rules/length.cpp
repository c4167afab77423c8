// The "length" reward: 1 up to `target`, falling linearly to 0 at `limit`, 0 beyond.
#include <algorithm>

#include "rewards/reward.h"

namespace hone {

namespace {

class Length : public Reward {
 public:
  void fields(Fields& f) override {
    f("unit", unit_, "unit of length: \"tokens\" or \"bytes\"");
    f("target", target_, "the score is 1 up to this length");
    f("limit", limit_, "the score is 0 from this length on");
  }
  void prepare() override {
    HONE_CHECK(unit_ == "tokens" || unit_ == "bytes", "unit is '", unit_, "'; it must be tokens or bytes");
    HONE_CHECK(target_ >= 0 && limit_ > target_, "limit (", limit_, ") must be above target (", target_, ")");
  }
  RewardScore score(const Task&, const Completion& completion) const override {
    const bool tokens = unit_ == "tokens";
    if (tokens && completion.ids.empty() && !completion.text.empty()) return {.note = "no token ids", .skipped = true};
    const int64_t length = static_cast<int64_t>(tokens ? completion.ids.size() : completion.text.size());
    const double over = static_cast<double>(length - target_) / static_cast<double>(limit_ - target_);
    return {.score = 1 - std::clamp(over, 0.0, 1.0), .note = over > 0 ? concat(length, " ", unit_) : ""};
  }

 private:
  std::string unit_ = "tokens";
  int64_t target_ = 512, limit_ = 1024;
};

[[maybe_unused]] const bool added = rewards().add("length", [] { return std::unique_ptr<Reward>(new Length); });

}  // namespace

}  // namespace hone
