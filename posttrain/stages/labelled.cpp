// Training on single completions that are each desirable or not (TRL's unpaired preferences). Each comes with the completion of another prompt, which
// is not trained on: its log-probs, taken before a step, tell the objective how far the whole step's policy is from the reference.
#include "posttrain/offline.h"
#include "posttrain/preference_data.h"

namespace hone {
namespace {

class Labelled : public Stage {
 public:
  void fields(Fields& f) override {
    data_.fields(f);
    training_.fields(f);
  }
  std::string default_name() const override { return training_.objective_name(); }
  int64_t steps() const override { return training_.steps(); }
  StepShape step_shape(const ModelShape&) const override { return training_.step_shape(data_.sample.max_length, 1); }

  void run(Run& run) override {
    const auto load = [&](const RowSource& rows) {
      LabelledSource source = data_;
      source.rows = rows;
      return load_labelled(source, *run.tokenizer);
    };
    std::vector<Group> credited;
    training_.run(run, data_.rows, load, [&](std::span<Group* const> batch, MetricSums& metrics) {
      credited.clear();
      std::vector<std::vector<int32_t>> mismatched;
      for (const Group* group : batch) credited.push_back(*group), mismatched.push_back(group->samples.at(1).tokens);
      std::vector<TokenScores> scores = score_sequences(run.context, *run.model, mismatched, {.temperature = training_.trainer().temperature});
      for (size_t i = 0; i < credited.size(); ++i) credited[i].samples[1].old_logp = std::move(scores[i].logp);
      training_.objective().credit(credited, metrics);
      std::vector<const Sample*> out;
      for (const Group& group : credited) out.push_back(&group.samples[0]);
      return out;
    });
  }

 private:
  LabelledSource data_;
  OfflineTraining training_{"kto", 16, "labelled completions"};
};

[[maybe_unused]] const bool added = stages().add("labelled", [] { return std::unique_ptr<Stage>(new Labelled); });

}  // namespace
}  // namespace hone
