#pragma once
// The interface of a recipe's stages (tokenizer, pretrain, sft, preference, rl, ...). A stage is one file
// in pretrain/stages/ or posttrain/stages/; run/ finds it through the registry:
//   [[maybe_unused]] const bool added = stages().add("sft", [] { return std::unique_ptr<Stage>(new Sft); });
// A stage sees a StageContext, not the run: tests build one from a temporary folder.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "core/base/rng.h"
#include "core/comm/ranks.h"
#include "core/config/fields.h"
#include "core/config/problems.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/model.h"
#include "train/metrics_log.h"

namespace hone {

class Objective;
struct TrainerConfig;
struct RolloutConfig;  // posttrain/rl/rollout_config.h: [rollout]; only stages of posttrain/ read it

// Settings of the recipe's other tables, for checks before anything is written.
struct StageSettings {
  std::string device;  // of the learner
  const RolloutConfig* rollout = nullptr;
};

// What a stage's check may read. Everything exists before the run computes anything, except what an earlier stage
// makes.
struct StageCheck {
  const StageSettings& settings;
  const Problems& problems;  // of the stage's table
  std::string name;
  // The run's tokenizer; if an earlier stage trains it, one with the same special tokens and no merges. Null: none.
  const Tokenizer* tokenizer = nullptr;
  bool tokenizer_is_trained = true;       // false: an earlier stage trains it
  const Model* model = nullptr;           // the model without weights; null if its config has a problem
  bool adapters = false;                  // the stage trains adapters (model.lora) instead of the weights
  std::filesystem::path run_folder = {};  // of a resumed run; empty for a new one
  // True for a path that an earlier stage of the run writes.
  std::function<bool(const std::filesystem::path&)> is_made_earlier = {};
};

// What train_loop() writes for the report.
struct StageResult {
  int64_t steps = 0, tokens = 0;
  // Above `steps` if training stopped early. The next stage's steps are numbered from here.
  int64_t planned_steps = 0;
  int64_t final_step = 0;  // the next stage starts from this step's checkpoint
  double seconds = 0;
};

// What a stage works on. It must outlive the stage's run(). With several ranks each has its own, and all of them run
// the stage; rank 0 alone writes files (ranks.do_on_first), and its `log` alone writes.
struct StageContext {
  Context& context;  // device, stream, scratch, numerics
  MetricsLog& log;
  std::optional<Tokenizer>& tokenizer;  // a stage of kind tokenizer sets it
  std::unique_ptr<Model>& model;        // null in stages that do not train
  std::filesystem::path run_folder, checkpoints;
  // The model folder that `model` was loaded from when the stage began; empty for random weights.
  std::filesystem::path start_folder = {};
  // generation_config.json of that model; checkpoints keep its fields.
  Json generation_config = JsonObject{};
  std::string name = {};
  int64_t index = 0;       // place in the recipe
  int64_t first_step = 0;  // optimizer steps of the stages before this one
  uint64_t seed = 0;       // of dropout and of noise in training
  uint64_t data_seed = 0;  // of the order of data
  uint64_t sampling_seed = 0;
  DType save_dtype = DType::f32;
  double peak_flops = 0;      // FLOP/s of the device, which mfu is a share of (train/peak_flops.h); 0 = unknown
  int64_t planned_bytes = 0;  // device memory of the run at its peak, as planned; 0 = not planned
  const RolloutConfig* rollout = nullptr;
  // Loads another copy of the model as it was when the stage began.
  std::function<std::unique_ptr<Model>(bool gradients)> load_start_model = {};
  // The ranks that run the stage together, and the multiple that their steps' micro-batches are cut to, which does not
  // depend on their number.
  Ranks ranks = {};
  int64_t micro_batch_multiple = 1;
  int64_t zero = 2;  // ZeRO stage of several ranks (train/parallel/zero.h)
  // Evaluates the recipe's tasks and logs their metrics as a row of `step`; null: the recipe has no tasks. All ranks
  // call it.
  std::function<void(int64_t step)> evaluate = {};
  StageResult result = {};
};

// The seed of a stage: it depends on the stage's name, not on its place.
inline uint64_t stage_seed(int64_t recipe_seed, const std::string& stage_name) {
  return static_cast<uint64_t>(recipe_seed) ^ stream_of(stage_name.c_str());
}

// The largest optimizer step of a stage, for planning.
struct PlannedStep {
  int64_t sequences = 0, length = 0;  // sequences: of an update; length: tokens of the longest sample
  int64_t updates = 1;                // optimizer updates of a step
  int64_t sampled = 0;                // completions sampled in a step; 0 = sequences * updates
  bool equal_lengths = false;         // every sample has the length
  std::shared_ptr<const Objective> objective;
  const TrainerConfig* trainer = nullptr;
  bool reference = false;  // the stage keeps a frozen copy of the model
  bool rollout = false;    // the stage has a KV cache
  // Prompts of a step, of which each rank samples its part; 0: rank 0 samples all.
  int64_t dealt_prompts = 0;
  bool scores_samples = false;  // a scoring pass under the model itself precedes the updates of a step
  bool evaluates = false;       // tasks are evaluated while the stage's trainer exists
  // Above 0: a copy of the model generates while the learner trains, and up to this many versions wait for it.
  int64_t max_versions_in_flight = 0;
};

struct PromptFormat;  // data/prompt.h
struct ShownSample;   // train/shown_sample.h
struct ShowRequest;

class Stage;
using StageFactory = std::unique_ptr<Stage> (*)();
Registry<StageFactory>& stages();

// A stage of a recipe: its settings, and run(). It is a value: run() makes all run-time objects, and only resolve()
// changes it.
class Stage {
 public:
  virtual ~Stage() = default;
  static Registry<StageFactory>& registry() { return stages(); }
  virtual void fields(Fields& f) = 0;
  // The stage's name unless the recipe gives one.
  virtual std::string default_name() const = 0;
  // True if the stage changes the model. Such stages are checkpointed and evaluated.
  virtual bool trains() const { return true; }
  // False if the next stage starts from the same model as this one. What this stage trains then has another use (a
  // reward model), and evaluation tasks do not measure it.
  virtual bool hands_model_on() const { return trains(); }
  // True if it trains the adapters of model.lora instead of the weights if the recipe has adapters.
  virtual bool trains_adapters() const { return trains(); }
  // Optimizer steps. 0 for a stage that does not train, and if num_train_epochs counts passes over a corpus that is not
  // tokenized yet.
  virtual int64_t steps() const { return 0; }
  // tokenizer: null if a stage of the recipe trains it.
  virtual PlannedStep planned_step(const ModelShape&, const Tokenizer*) const { return {}; }
  // Size of the vocabulary that the stage makes (in the run folder's tokenizer/); 0 = it makes none.
  virtual int64_t vocab_size() const { return 0; }
  // Called once after the recipe is read. Sets what depends on other tables, so that the resolved recipe shows it.
  virtual void resolve(const StageSettings&) {}
  // The tokenizer that the stage will make, as far as it is known before training: its special tokens, and bytes.
  virtual std::optional<Tokenizer> untrained_tokenizer() const { return std::nullopt; }
  // Adds a problem for each file, row, template, reward or setting that run() would stop at. It uses the functions that
  // run() uses, on the first row of each file.
  virtual void check(const StageCheck&) const {}
  // Sentences for the log about settings that are allowed and rarely intended.
  virtual std::vector<std::string> warnings() const { return {}; }
  // How the stage's prompts are written; null if it has none. The model is saved with the chat template that it names.
  virtual const PromptFormat* prompt_format() const { return nullptr; }
  // The samples of the first rows, as run() makes them, in the order of the rows. No model is needed.
  virtual std::vector<ShownSample> show(const ShowRequest& request) const;
  virtual void run(StageContext& stage) const = 0;
};

}  // namespace hone
