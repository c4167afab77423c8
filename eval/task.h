#pragma once
// Evaluation tasks. A task is a kind (generate, multiple_choice, loglikelihood, perplexity, group; one file each) with
// settings, usually a TOML file in configs/tasks. A kind registers itself with one line:
//   [[maybe_unused]] const bool added =
//       eval_kinds().add("generate", [] { return std::unique_ptr<EvalTask>(new Generate); });
#include <functional>
#include <memory>
#include <string>

#include "core/base/registry.h"
#include "core/config/fields.h"
#include "core/text/chat_settings.h"
#include "core/text/tokenizer/tokenizer.h"
#include "eval/result.h"
#include "model/model.h"
#include "rollout/engine.h"

namespace hone {

// Names follow lm-evaluation-harness if it has the option.
struct EvalOptions {
  int64_t limit = 0;         // use only this many first problems; 0 = all
  int64_t num_fewshot = -1;  // examples before each question; -1 = the task's own number
  bool apply_chat_template = false, fewshot_as_multiturn = false;
  std::string system_instruction = {};
  ChatSettings chat = {};  // a template means apply_chat_template
  int64_t samples = 0;     // completions to sample for each problem, in addition to the greedy one
  double temperature = 1;  // of the sampled completions
  int64_t seed = 0;        // of sampling and of the bootstrap
  int64_t bootstrap_iters = 1000;
  void fields(Fields& f);
};

// The model that is evaluated, and its engine's config. All references must outlive it.
struct EvalTarget {
  Context& context;
  Model& model;
  const Tokenizer& tokenizer;
  EngineConfig engine;
};

class EvalTask {
 public:
  virtual ~EvalTask() = default;
  virtual void fields(Fields& f) = 0;
  // Throws if this machine cannot run the task; run() throws it as well. Reading a task does not call it.
  virtual void check() const {}
  // Returns one sample per problem, in any order. A sample depends on its row, the options and the model only.
  virtual EvalRun run(EvalTarget& target, const EvalOptions& options) const = 0;
  // Calls row() for each row that run() reads.
  virtual void each_row(const std::function<void(const Json& row, const std::string& where)>& row) const = 0;
  // Number of examples before each question.
  virtual int64_t num_fewshot(const EvalOptions&) const { return 0; }
};

using EvalKind = std::unique_ptr<EvalTask> (*)();
Registry<EvalKind>& eval_kinds();

// A task as written in a file or a recipe's table: name, kind, and the kind's own keys.
struct EvalTaskSpec {
  std::string name, kind;
  std::shared_ptr<EvalTask> task;  // set while fields() reads
  void fields(Fields& f);
  // Runs the task on a model and computes its figures.
  EvalResult evaluate(EvalTarget& target, const EvalOptions& options) const;
};

// Loads a TOML file, or NAME.toml from configs/tasks of the working folder or of the source tree of the binary.
EvalTaskSpec load_eval_task(const std::string& name_or_file);
// Names of the tasks in these folders.
std::vector<std::string> known_eval_tasks();

}  // namespace hone
