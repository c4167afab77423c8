#pragma once
// Evaluation tasks: a kind (generate, multiple_choice, perplexity; one file each) and its settings, usually a TOML file in configs/tasks.
//   [[maybe_unused]] const bool added = eval_kinds().add("generate", [] { return std::unique_ptr<EvalTask>(new Generate); });
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/fields.h"
#include "core/json.h"
#include "core/metrics.h"
#include "core/model/model.h"
#include "core/registry.h"
#include "core/tokenizer.h"
#include "rollout/engine.h"

namespace hone {

struct EvalOptions {
  int64_t limit = 0;       // first problems only; 0 = all
  int64_t samples = 0;     // replies drawn for each problem besides the greedy one
  double temperature = 1;  // of those
  int64_t seed = 0;
  void fields(Fields& f);
};

// A share of successes with its 95% Wilson interval.
struct Proportion {
  double value = 0, low = 0, high = 0;
  int64_t count = 0;
};
Proportion proportion(double successes, int64_t count);

struct EvalResult {
  std::string task, kind;
  std::optional<Proportion> accuracy;          // greedy, or the choice of highest likelihood
  std::optional<Proportion> sampled_accuracy;  // over all drawn replies
  Metrics metrics;                             // further figures: bits_per_byte, nats_per_token, mean_length, pass@k, ...
  int64_t num_problems = 0, num_tokens = 0;
  double seconds = 0;
  Json to_json() const;
};

// What an evaluation runs on. record, if set, gets one object a problem (prompt, reply, score, ...), in order.
struct EvalModel {
  Context& context;
  Model& model;
  const Tokenizer& tokenizer;
  EngineConfig engine;
  std::function<void(Json)> record;
};

class EvalTask {
 public:
  virtual ~EvalTask() = default;
  virtual void fields(Fields& f) = 0;
  virtual EvalResult run(EvalModel& on, const EvalOptions& options) const = 0;
};

using EvalKind = std::unique_ptr<EvalTask> (*)();
Registry<EvalKind>& eval_kinds();

// A task as a file or a recipe's table spells it: name, kind, and the kind's own keys.
struct EvalTaskSpec {
  std::string name, kind;
  std::shared_ptr<EvalTask> task;  // made while fields() reads
  void fields(Fields& f);
};

// A TOML file, or the name of one: NAME.toml in configs/tasks of the working folder, or of the source tree the binary was built from.
EvalTaskSpec load_eval_task(const std::string& name_or_file);
// Names of the tasks found there.
std::vector<std::string> known_eval_tasks();

}  // namespace hone
