#pragma once
// The result of an evaluation: its samples, one per question, and the figures computed from them. Figures are computed
// in the order of the rows' hashes, so that their bits do not depend on the order of the rows.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "core/io/metrics.h"
#include "eval/statistics.h"

namespace hone {

struct EvalSample {
  int64_t doc_id = 0;  // index of the row in its source
  std::string where;   // "file:line"
  std::string hash;    // of the row's contents, 16 hexadecimal digits
  // Among the questions of the row, which are one problem. Questions of a row follow one another.
  int64_t question_index = 0;
  std::string subtask;  // "" = none
  Json prompt;          // a text, or a list of {role, content}
  std::string target;   // the reference answer
  JsonObject details;   // members of the kind: completion, filtered, logp, ...
  std::map<std::string, Observation> metrics;
  Json to_json() const;
};

// The result of EvalTask::run().
struct EvalRun {
  std::vector<EvalSample> samples;
  std::string primary;              // the figure that is the task's accuracy; "" = none
  std::set<std::string> exponents;  // figures that are exp(sum(value) / sum(weight)): perplexities
  std::set<std::string> lower;      // figures where lower is better
  std::string sampled;  // the figure that is the fraction of right sampled completions; "" = none were sampled
  int64_t num_tokens = 0;
  Metrics facts;  // further numbers without statistics: mean_length, cut, failed
};

struct Figure {
  double value = 0;
  // mean_stderr; with subtasks pooled_stderr; for a figure that is not a mean of problems, the bootstrap's standard
  // deviation. Empty if it is undefined: one problem, equal values of all problems, no bootstrap.
  std::optional<double> stderr_value;
  std::optional<Interval> interval;  // bootstrap_interval; empty if bootstrap_iters is 0
  bool higher_is_better = true;
};

struct EvalResult {
  std::string task, kind;
  std::optional<Proportion> accuracy;  // the primary figure, with Wilson's interval
  // Over all sampled completions, with the bootstrap's interval over problems. If all completions are right, or all are
  // wrong, it is Wilson's interval over the problems.
  std::optional<Figure> sampled_accuracy;
  std::map<std::string, Figure> figures;
  std::map<std::string, std::map<std::string, Figure>> subtasks;  // by name; without intervals
  std::map<std::string, int64_t> subtask_sizes;
  Metrics metrics;  // values of all figures, and facts
  int64_t num_problems = 0, num_tokens = 0, num_fewshot = 0;
  double seconds = 0;
  std::vector<EvalSample> samples;  // by doc_id
  Json to_json() const;             // without the samples
};

// [low, high], or null.
Json interval_json(const std::optional<Interval>& interval);

// Computes the figures of a run's samples. The same samples give the same bits in any order.
EvalResult summarize(EvalRun run, int64_t bootstrap_iters, int64_t seed);

}  // namespace hone
