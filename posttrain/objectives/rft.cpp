#include <algorithm>

#include "posttrain/losses/advantage.h"

namespace hone {
namespace {

struct RftSettings : ObjectiveSettings {
  std::string weight = "accept";
  double threshold = 1;
  int64_t best_of_n = 0;

  void fields(Fields& f) override {
    f("weight", weight,
      "accept: completions with a reward of at least `threshold` have weight 1, the others 0 | reward: the weight of a "
      "completion is its reward");
    f("threshold", threshold, "accept: lowest reward of a completion that is trained on");
    f("best_of_n", best_of_n,
      "number of completions of a prompt to train on: those of the highest rewards, of equal ones the first; 0 = all");
    f.require("best_of_n", best_of_n >= 0, "best_of_n must be 0 or more");
    f.require("weight", weight == "accept" || weight == "reward", "weight must be accept or reward");
  }
  std::unique_ptr<Objective> make(const RunFacts&) const override;
};

// Rejection-sampling fine-tuning, or expert iteration (Yuan et al. 2023; Anthony et al. 2017): the likelihood of the
// model's own completions. Either those with enough reward count, or each counts by its reward, or only the best of
// each prompt count.
class Rft : public Objective {
 public:
  explicit Rft(const RftSettings& settings) : settings_(settings) {}

  Needs needs() const override {
    return {.columns = {columns::advantage},
            .unit = LossUnit::token,
            .loss_linear_in_logp = true,
            .data = TrainingData::rewarded};
  }
  bool has_no_gradient(const Sample& sample) const override {
    const std::span<const float> mask = sample.columns.find(columns::mask),
                                 advantage = sample.columns.find(columns::advantage);
    for (size_t t = 0; t < mask.size(); ++t)
      if (mask[t] != 0 && (t >= advantage.size() || advantage[t] != 0)) return false;
    return true;
  }

  // Takes the other completions out of the loss, which is a mean over the tokens of accepted completions.
  void compute_advantages(std::span<Group> groups, MetricSums& metrics) override {
    for (Group& group : groups) {
      std::vector<Sample*> ranked;
      for (Sample& sample : group.samples) ranked.push_back(&sample);
      std::stable_sort(ranked.begin(), ranked.end(), [](const Sample* a, const Sample* b) {
        return a->scored != b->scored ? a->scored : a->reward > b->reward;
      });
      for (size_t place = 0; place < ranked.size(); ++place) {
        Sample& sample = *ranked[place];
        const bool best = settings_.best_of_n == 0 || place < static_cast<size_t>(settings_.best_of_n);
        const bool accepted =
            sample.scored && best && (settings_.weight == "reward" || sample.reward >= settings_.threshold);
        if (!accepted) clear_mask(sample);
        set_advantage(sample, !accepted ? 0 : settings_.weight == "reward" ? sample.reward : 1);
        metrics.add("rft/accepted", accepted, 1);
      }
    }
  }
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums&) const override {
    const std::span<const float> logp = batch[columns::logp], mask = batch[columns::mask],
                                 advantage = batch[columns::advantage];
    double loss = 0;
    for (size_t t = 0; t < mask.size(); ++t) {
      if (mask[t] == 0) continue;
      const double weight = batch.scale * mask[t] * advantage[t];
      loss -= weight * logp[t];
      grad.logp[t] = static_cast<float>(-weight);
    }
    return loss;
  }

 private:
  const RftSettings settings_;
};

std::unique_ptr<Objective> RftSettings::make(const RunFacts&) const { return std::make_unique<Rft>(*this); }

[[maybe_unused]] const bool added = add_objective<RftSettings>("rft");

}  // namespace
}  // namespace hone
