#include "rewards/reward.h"

#include "core/base/parallel_for.h"

namespace hone {

void Reward::score_group(const Task& task, std::span<const Completion> completions,
                         std::span<RewardScore> scores) const {
  for (size_t i = 0; i < completions.size(); ++i) scores[i] = score(task, completions[i]);
}

void Reward::score_groups(std::span<const GroupScores> groups) const {
  parallel_for(static_cast<int64_t>(groups.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const GroupScores& group = groups[static_cast<size_t>(i)];
      score_group(group.task, group.completions, group.scores);
    }
  });
}

void Reward::check(const RewardTrial& trial) const {
  if (!trial.task) return;
  const RewardScore tried = score(*trial.task, {});
  HONE_CHECK(!tried.failed, trial.task->id, ": ", tried.note);
}

Registry<RewardFactory>& rewards() {
  static Registry<RewardFactory> registry("reward");
  return registry;
}

void RewardSpec::fields(Fields& f, bool optional) {
  reward.fields(
      f, "kind", "kind of reward, one of `hone list rewards`; the reward's own keys stand in the same table",
      [&] {
        f("name", name, "name in metrics and messages; empty = the kind");
        f("weight", weight, "factor of the score when rewards are added");
      },
      optional);
}

void RewardSpec::check() const {
  const std::string refusal = reward ? reward->unavailable_reason() : "";
  HONE_CHECK(refusal.empty(), label(), ": ", refusal);
}

void RewardSpec::check(const RewardTrial& trial) const {
  check();
  try {
    if (reward) reward->check(trial);
  } catch (const Error& error) {  // gets the reward's name
    fail(label(), ": ", error.what());
  }
}

std::shared_ptr<const Reward> make_reward(std::string_view spec) {
  RewardSpec out;
  if (spec.starts_with('{'))
    Config::from_text("reward = " + std::string(spec), "--reward").read([&](Fields& f) {
      f("reward", out, "the reward");
    });
  else if (spec.ends_with(".toml"))
    Config::from_file(std::string(spec)).read([&](Fields& f) { out.fields(f); });
  else
    out.reward = Choice<Reward>(std::string(spec));
  out.check();
  return out.reward.shared();
}

}  // namespace hone
