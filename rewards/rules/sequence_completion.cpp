// The "sequence_completion" reward: an arithmetic sequence modulo a number (the digit_completion toy task). The prompt
// is "first,second:modulus,count", as in the published data ("7,7:9,4": four more numbers after 7,7 modulo 9). The
// expected numbers are
//   next[0] = (second + d) mod modulus,  next[k] = (next[k-1] + d) mod modulus,
//   d = (second - first) mod modulus,  k < count,
// separated by commas and nothing else. The score is the number of right places divided by max(count, places written),
// so that neither a short nor a long completion pays. If count is 0, the empty completion scores 1 and any other 0.
#include <algorithm>
#include <charconv>

#include "rewards/answers/text.h"
#include "rewards/reward.h"

namespace hone {

namespace {

struct Problem {
  int64_t first = 0, second = 0, modulus = 0, count = 0;
};

class SequenceCompletion : public Reward {
 public:
  void fields(Fields& f) override {
    f("order", order_, "order of the numbers after the colon: \"modulus,count\" or \"count,modulus\"");
    f("max_count", max_count_, "maximum count; a task with a larger one is an error");
  }
  void prepare() override {
    HONE_CHECK(order_ == "modulus,count" || order_ == "count,modulus", "order is '", order_,
               "'; it must be \"modulus,count\" or \"count,modulus\"");
    HONE_CHECK(max_count_ > 0, "max_count is ", max_count_, "; it must be positive");
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    const Problem problem = parse(task.prompt);
    const int64_t m = problem.modulus, step = ((problem.second - problem.first) % m + m) % m;
    std::string_view rest = trimmed(completion.text);
    int64_t expected = (problem.second % m + m) % m, right = 0, written = 0;
    for (bool more = !rest.empty(); more; ++written) {
      const size_t comma = rest.find(',');
      more = comma != std::string_view::npos;
      expected = (expected + step) % m;
      if (written < problem.count && rest.substr(0, comma) == std::to_string(expected)) ++right;
      if (more) rest.remove_prefix(comma + 1);
    }
    const int64_t places = std::max(problem.count, written);
    const double share = places == 0 ? 1.0 : static_cast<double>(right) / static_cast<double>(places);
    return {.score = share, .note = share == 1 ? "" : concat(right, " of ", places, " right")};
  }

 private:
  Problem parse(const std::string& prompt) const {
    Problem out;
    const std::string_view text = trimmed(prompt);
    const char *at = text.data(), *end = at + text.size();
    const auto number = [&](int64_t& value, char after) {
      const auto [stop, error] = std::from_chars(at, end, value);
      const bool good = error == std::errc() && value >= 0 && value <= 1'000'000'000 &&
                        (after ? stop < end && *stop == after : stop == end);
      at = good && after ? stop + 1 : stop;
      return good;
    };
    const bool modulus_first = order_ == "modulus,count";
    const bool good = number(out.first, ',') && number(out.second, ':') &&
                      number(modulus_first ? out.modulus : out.count, ',') &&
                      number(modulus_first ? out.count : out.modulus, '\0');
    HONE_CHECK(good && out.modulus > 0 && out.count <= max_count_, "reward sequence_completion: the prompt '",
               excerpt(prompt), "' is not \"first,second:", order_, "\" with a positive modulus and at most ",
               max_count_, " numbers");
    return out;
  }

  std::string order_ = "modulus,count";
  int64_t max_count_ = 1000;
};

[[maybe_unused]] const bool added =
    rewards().add("sequence_completion", [] { return std::unique_ptr<Reward>(new SequenceCompletion); });

}  // namespace

}  // namespace hone
