// Training on pairs of a better and a worse completion. The reference is the model as it was when the stage began.
#include "posttrain/offline.h"
#include "posttrain/preference_data.h"

namespace hone {
namespace {

class Preference : public Stage {
 public:
  void fields(Fields& f) override {
    data_.fields(f);
    training_.fields(f);
  }
  std::string default_name() const override { return training_.objective_name(); }
  int64_t steps() const override { return training_.steps(); }
  StepShape step_shape(const ModelShape&) const override { return training_.step_shape(data_.sample.max_length, 2); }

  void run(Run& run) override {
    training_.run(run, data_.rows, [&](const RowSource& rows) {
      PreferenceSource source = data_;
      source.rows = rows;
      return load_preferences(source, *run.tokenizer);
    });
  }

 private:
  PreferenceSource data_;
  OfflineTraining training_{"dpo", 16, "pairs"};
};

[[maybe_unused]] const bool added = stages().add("preference", [] { return std::unique_ptr<Stage>(new Preference); });

}  // namespace
}  // namespace hone
