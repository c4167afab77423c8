#include "posttrain/rl/source_reward.h"

#include <algorithm>
#include <vector>

namespace hone {
namespace {

class SourceReward : public Reward {
 public:
  explicit SourceReward(std::map<std::string, RewardSpec> by_source) : by_source_(std::move(by_source)) {}

  std::string unavailable_reason() const override {
    for (const auto& [source, spec] : by_source_)
      if (const std::string why = spec.reward->unavailable_reason(); !why.empty())
        return concat("source ", source, ": ", spec.label(), ": ", why);
    return "";
  }
  void begin(const RewardRun& run) const override {
    for (const auto& [source, spec] : by_source_) spec.reward->begin(run);
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    RewardScore out;
    score_group(task, {&completion, 1}, {&out, 1});
    return out;
  }
  void score_group(const Task& task, std::span<const Completion> completions,
                   std::span<RewardScore> scores) const override {
    const RewardSpec& spec = spec_of(task);
    spec.reward->score_group(task, completions, scores);
    name_parts(spec, scores);
  }
  void score_groups(std::span<const GroupScores> groups) const override {
    for (const auto& [source, spec] : by_source_) {
      std::vector<GroupScores> own;
      for (const GroupScores& group : groups)
        if (&spec_of(group.task) == &spec) own.push_back(group);
      if (!own.empty()) spec.reward->score_groups(own);
      for (const GroupScores& group : own) name_parts(spec, group.scores);
    }
  }
  bool reads_answers(const Task& task) const override { return spec_of(task).reward->reads_answers(task); }
  std::optional<std::string> read_answer(const Task& task, const Completion& completion) const override {
    return spec_of(task).reward->read_answer(task, completion);
  }
  bool same_answers(const Task& task, const std::string& a, const std::string& b) const override {
    return spec_of(task).reward->same_answers(task, a, b);
  }
  bool on_host() const override {
    return std::ranges::all_of(by_source_, [](const auto& entry) { return entry.second.reward->on_host(); });
  }
  int64_t concurrency() const override {
    int64_t most = 0;
    for (const auto& [source, spec] : by_source_) most = std::max(most, spec.reward->concurrency());
    return most;
  }

 private:
  const RewardSpec& spec_of(const Task& task) const {
    const auto found = by_source_.find(task.source);
    HONE_CHECK(found != by_source_.end(), "reward: ", task.id, " is of source '", task.source,
               "', which has no reward");
    return found->second;
  }
  // The caller names scores and failures by this reward unless they have names.
  static void name_parts(const RewardSpec& spec, std::span<RewardScore> scores) {
    for (RewardScore& score : scores) {
      if (score.failed && score.failed_parts.empty()) score.failed_parts.push_back(spec.label());
      if (!score.failed && !score.skipped && score.parts.empty()) score.parts[spec.label()] = score.score;
    }
  }

  const std::map<std::string, RewardSpec> by_source_;
};

}  // namespace

RewardSpec reward_of_sources(const std::map<std::string, RewardSpec>& by_source) {
  HONE_CHECK(!by_source.empty(), "reward: there are no sources");
  const RewardSpec& first = by_source.begin()->second;
  const auto is_first = [&](const auto& entry) { return entry.second.reward.get() == first.reward.get(); };
  if (std::ranges::all_of(by_source, is_first)) return first;
  RewardSpec out;
  out.name = "source";
  out.reward.set("source", std::make_shared<const SourceReward>(by_source));
  return out;
}

std::map<std::string, Metrics> weights_by_source(const std::map<std::string, RewardSpec>& by_source,
                                                 const EnvironmentConfig& environment) {
  std::map<std::string, Metrics> out;
  for (const auto& [source, spec] : by_source) {
    Metrics& weights = out[source];
    if (spec.reward) weights = spec.reward->part_weights();
    if (spec.reward && weights.empty()) weights[""] = 1;
    if (environment) weights[environment.label()] = environment.reward_weight;
  }
  return out;
}

}  // namespace hone
