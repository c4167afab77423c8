#include "posttrain/losses/group_pairs.h"

#include <algorithm>
#include <cmath>

#include "data/trajectory.h"

namespace hone {

void PairRules::fields(Fields& f) {
  f("margin", margin,
    "the rewards of a pair differ by more than this; 0 = by any amount; -1 = equal rewards make a pair, too, whose "
    "chosen completion is the one sampled first (as in TRL)");
  f("pairs_per_prompt", pairs_per_prompt,
    "maximum number of pairs of a prompt: the best completion with the worst, the second best with the second worst, "
    "...");
  f("missing_eos_penalty", missing_eos_penalty,
    "subtracted from the reward of a completion that was cut off at a length limit before pairs are made; metrics of "
    "rewards are without it");
  f.require("margin", std::isfinite(margin) && (margin >= 0 || margin == -1), "margin must be 0 or more, or -1");
  f.require("pairs_per_prompt", pairs_per_prompt > 0, "pairs_per_prompt must be positive");
  f.require("missing_eos_penalty", std::isfinite(missing_eos_penalty) && missing_eos_penalty >= 0,
            "missing_eos_penalty must be 0 or more, since it is subtracted");
}

std::vector<RankedPair> rank_pairs(std::span<const Sample* const> completions, const PairRules& rules) {
  const auto score = [&](const Sample* sample) {
    return sample->reward - (is_limit_reason(sample->completion.finish_reason) ? rules.missing_eos_penalty : 0);
  };
  std::vector<const Sample*> ranked;
  for (const Sample* sample : completions)
    if (sample->scored) ranked.push_back(sample);
  std::ranges::stable_sort(ranked, [&](const Sample* a, const Sample* b) { return score(a) > score(b); });
  std::vector<RankedPair> out;
  for (size_t i = 0; 2 * i + 1 < ranked.size() && static_cast<int64_t>(i) < rules.pairs_per_prompt; ++i) {
    const Sample *chosen = ranked[i], *rejected = ranked[ranked.size() - 1 - i];
    const double margin = score(chosen) - score(rejected);
    if (!(margin > rules.margin)) break;
    out.push_back({chosen, rejected, margin});
  }
  return out;
}

std::vector<Group> make_pairs(std::span<const Group> groups, const PairRules& rules, Metrics& metrics) {
  std::vector<Group> out;
  double margins = 0, prompts = 0;
  for (const Group& group : groups) {
    std::vector<const Sample*> completions;
    for (const Sample& sample : group.samples) completions.push_back(&sample);
    const std::vector<RankedPair> pairs = rank_pairs(completions, rules);
    prompts += !pairs.empty();
    for (const RankedPair& pair : pairs) {
      margins += pair.margin;
      out.push_back({.task = group.task, .samples = {*pair.chosen, *pair.rejected}});
    }
  }
  metrics["pairs"] = static_cast<double>(out.size());
  metrics["pairs/prompts_ratio"] = groups.empty() ? 0 : prompts / static_cast<double>(groups.size());
  if (!out.empty()) metrics["objective/scores_margin"] = margins / static_cast<double>(out.size());
  return out;
}

}  // namespace hone
