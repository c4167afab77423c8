// Training on pairs of a better and a worse completion. The reference is the model as it was when the stage began; its log-probs are computed once.
#include "core/log.h"
#include "posttrain/dataset.h"
#include "posttrain/objective_spec.h"
#include "posttrain/reference.h"
#include "posttrain/stage.h"
#include "posttrain/train_loop.h"
#include "pretrain/loader.h"

namespace hone {
namespace {

class Preference : public Stage {
 public:
  void fields(Fields& f) override {
    data_.fields(f);
    f("batch_size", batch_size_, "pairs of an optimizer step");
    objective_.fields(f);
    loop_.fields(f);
    f.require("batch_size", batch_size_ > 0 && batch_size_ <= max_batch, concat("batch_size must be in [1, ", max_batch, "]"));
  }
  std::string default_name() const override { return objective_.objective; }
  int64_t steps() const override { return loop_.steps; }
  StepShape step_shape(const ModelShape&) const override {
    return {.sequences = 2 * batch_size_,
            .length = data_.max_length,
            .objective = objective_.made.get(),
            .trainer = &loop_.trainer,
            .reference = objective_.made->needs().reference};
  }

  void run(Run& run) override {
    std::vector<Group> pairs = load_preferences(data_, *run.tokenizer);
    log::info("preference: ", pairs.size(), " pairs");
    if (objective_.made->needs().reference) Reference(run.context, run.load_start_model(false), loop_.trainer.temperature).score_into(pairs);
    Trainer trainer(run.context, *run.model, loop_.trainer);
    IndexLoader order(static_cast<int64_t>(pairs.size()), run.stage_seed());
    std::vector<const Sample*> batch;
    train_loop(run, loop_, trainer, {{"loader", &order}}, [&](int64_t, double learning_rate) {
      batch.clear();
      for (int64_t i = 0; i < batch_size_; ++i)
        for (const Sample& sample : pairs[static_cast<size_t>(order.next())].samples) batch.push_back(&sample);
      return trainer.step(batch, *objective_.made, learning_rate);
    });
  }

 private:
  PreferenceSource data_;
  int64_t batch_size_ = 16;
  ObjectiveSpec objective_{.objective = "dpo", .made = {}};
  LoopConfig loop_;
};

[[maybe_unused]] const bool added = stages().add("preference", [] { return std::unique_ptr<Stage>(new Preference); });

}  // namespace
}  // namespace hone
