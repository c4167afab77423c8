// Training on single completions that are each desirable or not (TRL's unpaired preferences). Each comes with the
// completion of another prompt, which is not trained on: its log-probs, taken before a step, tell the objective how far
// the whole step's policy is from the reference.
#include "posttrain/losses/pair_loss.h"
#include "posttrain/offline_stage.h"
#include "posttrain/preference_data.h"

namespace hone {
namespace {

class UnpairedPreference : public OfflineStage<UnpairedSource> {
 public:
  UnpairedPreference() : OfflineStage({"kto", 16, "labelled completions", 1e-6}, 1) {}

 protected:
  std::vector<Group> load(const UnpairedSource& source, const Tokenizer& tokenizer) const override {
    return load_unpaired(source, tokenizer);
  }

  OfflineTraining::Prepare prepare(Run& run) override {
    return [this, &run, credited = std::vector<Group>()](std::span<Group* const> batch, Objective& objective,
                                                         MetricSums& metrics) mutable {
      credited.clear();
      std::vector<std::vector<int32_t>> mismatched;
      for (const Group* group : batch) credited.push_back(*group), mismatched.push_back(group->samples.at(1).tokens);
      std::vector<TokenLogprobs> scores =
          compute_logprobs(run.context, *run.model, mismatched, {.temperature = training_.trainer().temperature});
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
    stages().add("labelled", [] { return std::unique_ptr<Stage>(new UnpairedPreference); });

}  // namespace
}  // namespace hone
