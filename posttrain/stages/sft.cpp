// Supervised fine-tuning on prompts with completions, or on conversations.
#include "core/log.h"
#include "posttrain/dataset.h"
#include "posttrain/objective_spec.h"
#include "posttrain/stage.h"
#include "posttrain/train_loop.h"
#include "pretrain/loader.h"

namespace hone {
namespace {

class Sft : public Stage {
 public:
  void fields(Fields& f) override {
    data_.fields(f);
    f("batch_size", batch_size_, "samples of an optimizer step");
    objective_.fields(f);
    loop_.fields(f);
    f.require("batch_size", batch_size_ > 0 && batch_size_ <= max_batch, concat("batch_size must be in [1, ", max_batch, "]"));
  }
  std::string default_name() const override { return "sft"; }
  int64_t steps() const override { return loop_.steps; }
  StepShape step_shape(const ModelShape&) const override {
    return {.sequences = batch_size_, .length = data_.max_length, .objective = objective_.made.get(), .trainer = &loop_.trainer};
  }

  void run(Run& run) override {
    const std::vector<Sample> samples = load_sft(data_, *run.tokenizer);
    log::info("sft: ", samples.size(), " samples");
    Trainer trainer(run.context, *run.model, loop_.trainer);
    IndexLoader order(static_cast<int64_t>(samples.size()), run.stage_seed());
    std::vector<const Sample*> batch(static_cast<size_t>(batch_size_));
    train_loop(run, loop_, trainer, {{"loader", &order}}, [&](int64_t, double learning_rate) {
      for (const Sample*& sample : batch) sample = &samples[static_cast<size_t>(order.next())];
      return trainer.step(batch, *objective_.made, learning_rate);
    });
  }

 private:
  SftSource data_;
  int64_t batch_size_ = 32;
  ObjectiveSpec objective_{.objective = "sft", .made = {}};
  LoopConfig loop_;
};

[[maybe_unused]] const bool added = stages().add("sft", [] { return std::unique_ptr<Stage>(new Sft); });

}  // namespace
}  // namespace hone
