// Training on single completions, each desirable or not (TRL's unpaired preferences). Each group also holds the
// completion of another prompt, which is not trained on. Its log-probs before a step estimate the KL divergence of the
// policy from the reference for all samples of the step.
#include "posttrain/losses/pair_loss.h"
#include "posttrain/offline.h"
#include "posttrain/preference_data.h"
#include "train/shared_scores.h"

namespace hone {
namespace {

class UnpairedPreference : public OfflineStage<UnpairedSource> {
 public:
  UnpairedPreference() : OfflineStage({"kto", 16, "labeled completions", 1e-6}, 1) {}

 protected:
  std::string part_name(const Sample& sample, size_t) const override {
    return sample.reward > 0 ? "desirable" : "undesirable";
  }
  std::vector<Group> load(const UnpairedSource& source, const Tokenizer& tokenizer) const override {
    return load_unpaired(source, tokenizer);
  }

  OfflineTraining::Prepare prepare(StageContext& stage) const override {
    return [this, &stage, credited = std::vector<Group>()](std::span<Group* const> batch, Objective& objective,
                                                           MetricSums& metrics) mutable {
      credited.clear();
      std::vector<std::vector<int32_t>> mismatched;
      for (const Group* group : batch) {
        credited.push_back(*group);
        mismatched.push_back(group->samples.at(1).tokens);
      }
      std::vector<TokenLogprobs> scores = shared_logprobs(stage.ranks, stage.context, *stage.model, mismatched,
                                                          {.temperature = training_.trainer().temperature});
      for (size_t i = 0; i < credited.size(); ++i)
        credited[i].samples[1].columns.set(columns::mismatched_logp, std::move(scores[i].logp));
      objective.compute_advantages(credited, metrics);
      std::vector<const Sample*> out;
      for (const Group& group : credited) out.push_back(&group.samples[0]);
      return out;
    };
  }
};

[[maybe_unused]] const bool added =
    stages().add("unpaired_preference", [] { return std::unique_ptr<Stage>(new UnpairedPreference); });

}  // namespace
}  // namespace hone
