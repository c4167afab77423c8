// Training a reward model on pairs: the score of the chosen completion should exceed the score of the rejected one. Its
// checkpoints are sequence classifiers. The next stage starts from the model that this stage started from.
#include "posttrain/reward_model.h"

#include <algorithm>

#include "posttrain/losses/pair_loss.h"
#include "posttrain/offline.h"
#include "posttrain/preference_data.h"

namespace hone {
namespace {

class RewardModelStage : public OfflineStage<PreferenceSource> {
 public:
  RewardModelStage() : OfflineStage({"bradley_terry", 16, "pairs", 1e-4}, 2) {}
  void fields(Fields& f) override {
    data_fields(f);
    training_.fields(f);
  }
  std::string default_name() const override { return "reward_model"; }
  bool hands_model_on() const override { return false; }
  PlannedStep planned_step(const ModelShape&, const Tokenizer*) const override {
    return training_.planned_step(data_.sample.max_length + 1, 2);
  }

 protected:
  void source_fields(Fields& f, PreferenceSource& source) override {
    source.source_fields(f);
    f("margin", source.margin,
      "template of a number: the margin by which the score of the chosen completion should be higher; empty = 0");
  }
  std::string part_name(const Sample&, size_t i) const override { return i == 0 ? "chosen" : "rejected"; }
  std::vector<Group> load(const PreferenceSource& source, const Tokenizer& tokenizer) const override {
    std::vector<Group> pairs = load_preferences(source, tokenizer);
    const bool has_margins = !source.margin.empty() || some_source_has_margins();
    for (Group& pair : pairs)
      for (Sample& sample : pair.samples) {
        if (has_margins && source.margin.empty()) sample.columns.set(columns::margin, {0});
        add_score_position(sample);
      }
    return pairs;
  }

 private:
  // Samples of a step have the same columns.
  bool some_source_has_margins() const {
    return std::ranges::any_of(sources_.all(data_), [](const auto& source) { return !source.settings.margin.empty(); });
  }
};

[[maybe_unused]] const bool added =
    stages().add("reward_model", [] { return std::unique_ptr<Stage>(new RewardModelStage); });

}  // namespace
}  // namespace hone
