#pragma once
// Stages of a recipe: tokenizer, pretrain, sft, preference, rl, ...; one file each in posttrain/stages. A stage changes
// the run's tokenizer or model.
//   [[maybe_unused]] const bool added = stages().add("sft", [] { return std::unique_ptr<Stage>(new Sft); });
#include <memory>
#include <string>

#include "core/base/registry.h"
#include "core/config/fields.h"
#include "run/run.h"
#include "train/trainer.h"

namespace hone {

// What one optimizer step of a stage works on, at most: for planning.
struct PlannedStep {
  int64_t sequences = 0, length = 0;  // of an update; length: of the longest sample there can be
  int64_t updates = 1;                // of a step
  std::shared_ptr<const Objective> objective;
  const TrainerConfig* trainer = nullptr;
  bool reference = false, rollout = false;  // a frozen copy of the model; a KV cache
  // Above 0: replies are written while the learner learns, by a copy of the model; so many versions are on their way to
  // it.
  int64_t max_versions_in_flight = 0;
};

// Samples or prompts of a step, at most.
inline constexpr int64_t max_batch = int64_t{1} << 20;

class Stage {
 public:
  virtual ~Stage() = default;
  virtual void fields(Fields& f) = 0;
  // The stage's line in reports unless the recipe names it.
  virtual std::string default_name() const = 0;
  // True if it changes the model: such stages are checkpointed and evaluated.
  virtual bool trains() const { return true; }
  // False if the next stage starts from what this one started from: what it trains is for another use (a reward model),
  // and tasks do not tell how good it is.
  virtual bool hands_model_on() const { return trains(); }
  // True if it trains model.lora's adapters where the recipe has them, instead of the weights.
  virtual bool trains_adapters() const { return trains(); }
  // Steps in all: 0 for a stage that does not train, and where only the tokenized corpus can tell how many
  // num_train_epochs makes.
  virtual int64_t steps() const { return 0; }
  // tokenizer: null where the recipe has yet to train it.
  virtual PlannedStep planned_step(const ModelShape&, const Tokenizer*) const { return {}; }
  // Of the tokenizer a stage makes (in the run folder's tokenizer/); 0 = it makes none.
  virtual int64_t vocab_size() const { return 0; }
  // Takes over what the recipe's other tables decide: the resolved recipe then says it.
  virtual void resolve(const Recipe&) {}
  // Fails early, before anything is written: files that are missing, settings that do not fit.
  virtual void check(const Recipe&) const {}
  // Settings that are allowed and seldom meant, as sentences for the log.
  virtual std::vector<std::string> warnings() const { return {}; }
  virtual void run(Run& run) = 0;
};

using StageFactory = std::unique_ptr<Stage> (*)();
Registry<StageFactory>& stages();

}  // namespace hone
