#pragma once
// Evaluation tasks: a kind (generate, multiple_choice, loglikelihood, perplexity, group; one file each) and its
// settings, usually a TOML file in configs/tasks.
//   [[maybe_unused]] const bool added = eval_kinds().add("generate", [] { return std::unique_ptr<EvalTask>(new
//   Generate); });
#include <functional>
#include <memory>
#include <string>

#include "core/base/registry.h"
#include "core/config/fields.h"
#include "core/text/tokenizer/tokenizer.h"
#include "eval/result.h"
#include "model/model.h"
#include "rollout/engine.h"

namespace hone {

// Names are lm-evaluation-harness's where it has one.
struct EvalOptions {
  int64_t limit = 0;         // first problems only; 0 = all
  int64_t num_fewshot = -1;  // examples before each question; -1 = as the task says
  bool apply_chat_template = false, fewshot_as_multiturn = false;
  std::string system_instruction = {};
  int64_t samples = 0;     // replies drawn for each problem besides the greedy one
  double temperature = 1;  // of those
  int64_t seed = 0;        // of the draws and of the bootstrap
  int64_t bootstrap_iters = 1000;
  void fields(Fields& f);
};

// What an evaluation runs on.
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
  // An Error where this machine cannot run it; run() throws it, too. Reading a task does not ask.
  virtual void check() const {}
  // A sample a problem, in any order; what a sample says depends on its row, the options and the model alone.
  virtual EvalRun run(EvalTarget& on, const EvalOptions& options) const = 0;
  // The rows that run() reads.
  virtual void each_row(const std::function<void(const Json& row, const std::string& where)>& row) const = 0;
  // Examples before each question.
  virtual int64_t num_fewshot(const EvalOptions&) const { return 0; }
};

using EvalKind = std::unique_ptr<EvalTask> (*)();
Registry<EvalKind>& eval_kinds();

// A task as a file or a recipe's table spells it: name, kind, and the kind's own keys.
struct EvalTaskSpec {
  std::string name, kind;
  std::shared_ptr<EvalTask> task;  // made while fields() reads
  void fields(Fields& f);
  // The task on a model, with its figures.
  EvalResult evaluate(EvalTarget& on, const EvalOptions& options) const;
};

// A TOML file, or the name of one: NAME.toml in configs/tasks of the working folder, or of the source tree the binary
// was built from.
EvalTaskSpec load_eval_task(const std::string& name_or_file);
// Names of the tasks found there.
std::vector<std::string> known_eval_tasks();

}  // namespace hone
