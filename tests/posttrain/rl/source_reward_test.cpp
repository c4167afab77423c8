#include "posttrain/rl/source_reward.h"

#include <gtest/gtest.h>

#include <atomic>

#include "posttrain/rl/reward_runner.h"
#include "tests/posttrain/rl/environments/scripted_environment.h"
#include "tests/support/errors.h"

namespace hone {
namespace {

// Gives every completion the same score.
class Fixed : public Reward {
 public:
  Fixed(double value, bool host) : value_(value), host_(host) {}
  RewardScore score(const Task&, const Completion& completion) const override {
    return completion.text == "fail" ? RewardScore{.note = "broken", .failed = true} : RewardScore{.score = value_};
  }
  bool on_host() const override { return host_; }
  int64_t concurrency() const override { return static_cast<int64_t>(value_); }

 private:
  double value_;
  bool host_;
};

RewardSpec fixed(const std::string& kind, double value, bool host = true) {
  RewardSpec out;
  out.reward.set(kind, std::make_shared<const Fixed>(value, host));
  return out;
}

// Two groups of each of two sources, scored.
std::vector<Group> scored(const RewardSpec& spec, const std::string& text = "x") {
  std::vector<Group> out(4);
  for (size_t g = 0; g < out.size(); ++g) {
    out[g].task.id = std::to_string(g);
    out[g].task.source = g % 2 ? "code" : "math";
    out[g].samples.resize(2);
    for (Sample& sample : out[g].samples) sample.completion.text = text;
  }
  RewardRunner runner(spec, 1);
  RewardRunner::ScoringRound round(runner, out);
  for (size_t g = 0; g < out.size(); ++g) round.submit(g);
  round.finish();
  return out;
}

TEST(SourceReward, EachTaskIsScoredByTheRewardOfItsSource) {
  for (const bool host : {true, false}) {
    const RewardSpec spec = reward_of_sources({{"math", fixed("number", 2)}, {"code", fixed("tests", 5, host)}});
    EXPECT_EQ(spec.reward->on_host(), host);
    EXPECT_EQ(spec.reward->concurrency(), 5);
    for (const Group& group : scored(spec))
      for (const Sample& sample : group.samples) {
        const bool code = group.task.source == "code";
        EXPECT_EQ(sample.reward, code ? 5 : 2);
        EXPECT_EQ(sample.reward_parts, (code ? Metrics{{"tests", 5}} : Metrics{{"number", 2}}));
      }
  }
}

TEST(SourceReward, AFailureIsCountedUnderTheNameOfItsReward) {
  const RewardSpec spec = reward_of_sources({{"math", fixed("number", 2)}, {"code", fixed("tests", 5)}});
  for (const Group& group : scored(spec, "fail"))
    for (const Sample& sample : group.samples) {
      EXPECT_FALSE(sample.scored);
      EXPECT_EQ(sample.counts.begin()->first,
                group.task.source == "code" ? "rewards/tests/failed" : "rewards/number/failed");
    }
}

TEST(SourceReward, OneRewardForAllIsUsedAsItIs) {
  const RewardSpec shared = fixed("number", 2);
  const RewardSpec spec = reward_of_sources({{"math", shared}, {"code", shared}});
  EXPECT_EQ(spec.reward.get(), shared.reward.get());
  EXPECT_EQ(spec.label(), "number");
}

TEST(SourceReward, ASourceWithoutARewardIsNamed) {
  const RewardSpec spec = reward_of_sources({{"math", fixed("number", 2)}, {"other", fixed("tests", 5)}});
  EXPECT_NE(test::error_of([&] { scored(spec); }).find("is of source 'code'"), std::string::npos);
}

// Objectives that normalize each reward read these weights.
TEST(SourceReward, WeightsAreThoseOfThePartsAndOfTheEnvironment) {
  RewardSpec parts;
  Config::from_text(
      "kind = 'composite'\nparts = [{kind = 'exact', weight = 2.0}, {kind = 'exact'}, {kind = 'format', name = "
      "'shape', "
      "pattern = 'x', weight = 0.25}]",
      "test")
      .read([&](Fields& f) { parts.fields(f); });
  EXPECT_EQ(weights_by_source({{"", parts}}, {}),
            (std::map<std::string, Metrics>{{"", {{"exact", 2}, {"exact_2", 1}, {"shape", 0.25}}}}));
  EnvironmentConfig environment;
  environment.environment.set("scripted", std::make_shared<test::ScriptedEnvironments>(nullptr));
  environment.reward_weight = 0.5;
  EXPECT_EQ(weights_by_source({{"a", fixed("number", 2)}, {"b", RewardSpec()}}, environment),
            (std::map<std::string, Metrics>{{"a", {{"", 1}, {"environment", 0.5}}}, {"b", {{"environment", 0.5}}}}));
}

}  // namespace
}  // namespace hone
