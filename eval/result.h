#pragma once
// What an evaluation gives: its samples, one a problem, and the figures made of them. A figure is made in the order of
// the rows' hashes, so that it does not depend, to the last bit, on the order in which rows were read or scored.
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
  int64_t doc_id = 0;   // the row's place in its source
  std::string where;    // "file:line"
  std::string hash;     // of the row's contents, 16 hexadecimal digits
  std::string subtask;  // "" = none
  Json prompt;          // a text, or a list of {role, content}
  std::string target;   // the reference
  JsonObject details;   // the kind's own: resps, filtered_resps, logp, ...
  std::map<std::string, Observation> metrics;
  Json to_json() const;
};

// What a kind of task hands over.
struct EvalRun {
  std::vector<EvalSample> samples;
  std::string primary;              // the figure that is the task's accuracy; "" = it has none
  std::set<std::string> exponents;  // figures that are exp(sum(value) / sum(weight)): perplexities
  std::set<std::string> lower;      // figures of which less is better
  std::string sampled;  // the figure that is the share of drawn replies that are right; "" = nothing was drawn
  int64_t num_tokens = 0;
  Metrics facts;  // further figures without a statistic: mean_length, cut, failed
};

struct Figure {
  double value = 0;
  // mean_stderr; of subtasks pooled_stderr; of a figure that is no mean of problems, the bootstrap's standard
  // deviation. None where there is no such figure: one problem, problems that are all alike, no bootstrap.
  std::optional<double> stderr_value;
  std::optional<Interval> interval;  // bootstrap_interval; none if bootstrap_iters is 0
  bool higher_is_better = true;
};

struct EvalResult {
  std::string task, kind;
  std::optional<Proportion> accuracy;  // the primary figure, with Wilson's interval
  // Over all drawn replies, with the bootstrap's interval over problems. If all replies are right, or all wrong, it is
  // Wilson's over the problems.
  std::optional<Figure> sampled_accuracy;
  std::map<std::string, Figure> figures;
  std::map<std::string, std::map<std::string, Figure>> subtasks;  // by name: no intervals
  std::map<std::string, int64_t> subtask_sizes;
  Metrics metrics;  // every figure's value, and facts
  int64_t num_problems = 0, num_tokens = 0, num_fewshot = 0;
  double seconds = 0;
  std::vector<EvalSample> samples;  // by doc_id
  Json to_json() const;             // without the samples
};

// [low, high], or null.
Json interval_json(const std::optional<Interval>& interval);

// Figures of a run's samples. The same samples, in any order, give the same bits.
EvalResult summarise(EvalRun run, int64_t bootstrap_iters, int64_t seed);

}  // namespace hone
