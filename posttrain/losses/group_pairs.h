#pragma once
// Preference pairs of a group's completions by reward: the best with the worst, the second best with the second worst,
// and so on.
#include <span>
#include <vector>

#include "core/config/fields.h"
#include "train/objective.h"

namespace hone {

struct PairRules {
  double margin = 0;
  int64_t pairs_per_prompt = 1;
  double missing_eos_penalty = 0;
  // The keys of a stage that pairs what it samples.
  void fields(Fields& f);
};

struct RankedPair {
  const Sample *chosen = nullptr, *rejected = nullptr;
  double margin = 0;  // difference of their rewards
};

// At most pairs_per_prompt pairs, the largest margin first. Completions of equal reward keep their order. A pair's
// margin is above rules.margin; with a margin below 0 equal rewards make a pair, too, whose chosen completion is the
// earlier one (TRL's OnlineDPOTrainer). Completions without a score are left out.
std::vector<RankedPair> rank_pairs(std::span<const Sample* const> completions, const PairRules& rules);

// The pairs of the groups as groups of two copies: chosen, then rejected. Adds objective/scores_margin (TRL's), the
// mean difference of their rewards; pairs, their number; and pairs/prompts_ratio, the share of prompts with a pair.
std::vector<Group> make_pairs(std::span<const Group> groups, const PairRules& rules, Metrics& metrics);

}  // namespace hone
