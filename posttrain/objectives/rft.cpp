#include <algorithm>

#include "posttrain/losses/advantage.h"

namespace hone {
namespace {

// Rejection-sampling fine-tuning, or expert iteration (Yuan et al. 2023; Anthony et al. 2017): the likelihood of the
// model's own replies, of those that reached a reward, or each weighed by its reward, or of each prompt's best alone.
class Rft : public Objective {
 public:
  void fields(Fields& f) override {
    f("weight", weight_,
      "accept: replies of at least `threshold`, alike; the others not | reward: each reply by its reward");
    f("threshold", threshold_, "accept: the reward from which on a reply is learnt");
    f("best_of_n", best_of_n_,
      "of a prompt's replies at most this many are learnt: of the highest rewards, of equal ones those drawn first; 0 "
      "= all");
    f.require("best_of_n", best_of_n_ >= 0, "best_of_n must be 0 or more");
    f.require("weight", weight_ == "accept" || weight_ == "reward", "weight must be accept or reward");
  }
  Needs needs() const override { return {.per = LossUnit::token, .loss_linear_in_logp = true, .data = TrainingData::rewarded}; }
  bool has_no_gradient(const Sample& sample) const override {
    for (size_t t = 0; t < sample.mask.size(); ++t)
      if (sample.mask[t] != 0 && (t >= sample.advantage.size() || sample.advantage[t] != 0)) return false;
    return true;
  }

  // A reply that is not accepted is taken out: the loss is a mean over the tokens of those that are.
  void compute_advantages(std::span<Group> groups, MetricSums& metrics) override {
    for (Group& group : groups) {
      std::vector<Sample*> ranked;
      for (Sample& sample : group.samples) ranked.push_back(&sample);
      std::stable_sort(ranked.begin(), ranked.end(), [](const Sample* a, const Sample* b) {
        return a->scored != b->scored ? a->scored : a->reward > b->reward;
      });
      for (size_t place = 0; place < ranked.size(); ++place) {
        Sample& sample = *ranked[place];
        const bool best = best_of_n_ == 0 || place < static_cast<size_t>(best_of_n_);
        const bool accepted = sample.scored && best && (weight_ == "reward" || sample.reward >= threshold_);
        if (!accepted) std::ranges::fill(sample.mask, 0.f);
        set_advantage(sample, !accepted ? 0 : weight_ == "reward" ? sample.reward : 1);
        metrics.add("rft/accepted", accepted, 1);
      }
    }
  }
  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums&) const override {
    HONE_CHECK(!batch.advantage.empty() || batch.num_tokens() == 0, "rft: needs advantages; they come from rewards");
    double loss = 0;
    for (size_t t = 0; t < batch.mask.size(); ++t) {
      if (batch.mask[t] == 0) continue;
      const double weight = batch.scale * batch.mask[t] * batch.advantage[t];
      loss -= weight * batch.logp[t];
      grad.logp[t] = static_cast<float>(-weight);
    }
    return loss;
  }

 private:
  std::string weight_ = "accept";
  double threshold_ = 1;
  int64_t best_of_n_ = 0;
};

[[maybe_unused]] const bool added = objectives().add("rft", [] { return std::unique_ptr<Objective>(new Rft); });

}  // namespace
}  // namespace hone
