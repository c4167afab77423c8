#include "eval/result.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/base/parallel_for.h"

namespace hone {
namespace {

using Columns = std::map<std::string, ProblemParts>;  // by figure; problems in the order of their hashes

// Rows with equal contents are one problem.
Columns columns_of(const std::vector<const EvalSample*>& samples) {
  Columns out;
  std::map<std::string_view, const EvalSample*> last;  // by figure
  for (const EvalSample* sample : samples)
    for (const auto& [name, observation] : sample->metrics) {
      const EvalSample*& before = last[name];
      out[name].add(observation, before && before->hash == sample->hash && before->subtask == sample->subtask);
      before = sample;
    }
  return out;
}

int64_t count_problems(const std::vector<const EvalSample*>& samples) {
  return std::ranges::count_if(samples, [](const EvalSample* sample) { return sample->question_index == 0; });
}

// The figure over the problems index(0), ..., index(count - 1).
double figure_of(const std::vector<Observation>& problems, bool exponent, size_t count,
                 const std::function<size_t(size_t)>& index) {
  double value = 0, weight = 0;
  for (size_t i = 0; i < count; ++i) {
    const Observation& one = problems[index(i)];
    value += one.value, weight += one.weight;
  }
  const double mean = weight > 0 ? value / weight : 0;
  return exponent ? std::exp(mean) : mean;
}

std::map<std::string, Figure> figures_of(const Columns& columns, const EvalRun& run) {
  std::map<std::string, Figure> out;
  for (const auto& [name, column] : columns) {
    const bool exponent = run.exponents.contains(name);
    Figure& figure = out[name];
    figure.value = figure_of(column.parts, exponent, column.parts.size(), [](size_t i) { return i; });
    figure.higher_is_better = !run.lower.contains(name);
    if (!exponent && column.is_mean) figure.stderr_value = mean_stderr(column.parts);
  }
  return out;
}

// Replaces standard errors of means by the pooled standard errors of the subtasks.
void pool_stderrs(EvalResult& out, const Columns& columns, const EvalRun& run) {
  for (auto& [name, figure] : out.figures) {
    if (out.subtasks.empty() || !columns.at(name).is_mean || run.exponents.contains(name)) continue;
    std::vector<double> stderrs;
    std::vector<int64_t> sizes;
    for (const auto& [subtask, figures] : out.subtasks)
      if (const auto found = figures.find(name); found != figures.end()) {
        stderrs.push_back(
            found->second.stderr_value.value_or(0));  // a subtask whose problems have equal values has no variance
        sizes.push_back(out.subtask_sizes.at(subtask));
      }
    if (sizes.empty()) continue;
    const double pooled = pooled_stderr(stderrs, sizes);
    figure.stderr_value = pooled > 0 ? std::optional(pooled) : std::nullopt;
  }
}

// All figures of an iteration use the same resample of the problems.
void bootstrap(std::map<std::string, Figure>& figures, const Columns& columns, const EvalRun& run, int64_t iterations,
               int64_t seed) {
  std::map<std::string, std::vector<double>> sampled;
  std::map<size_t, std::vector<std::string>>
      by_size;  // a figure that some problems lack is resampled from the problems that have it
  for (const auto& [name, column] : columns) {
    sampled[name].resize(static_cast<size_t>(iterations));
    by_size[column.parts.size()].push_back(name);
  }
  for (const auto& alike : by_size)
    parallel_for(iterations, 8, [&, size = alike.first](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const std::vector<int32_t> indices = resample(static_cast<int64_t>(size), seed, b);
        for (const std::string& name : alike.second)
          sampled.at(name)[static_cast<size_t>(b)] =
              figure_of(columns.at(name).parts, run.exponents.contains(name), size,
                        [&](size_t i) { return static_cast<size_t>(indices[i]); });
      }
    });
  for (auto& [name, values] : sampled) {
    Figure& figure = figures.at(name);
    const bool is_mean = columns.at(name).is_mean && !run.exponents.contains(name);
    const double deviation = standard_deviation(values);
    figure.interval = bootstrap_interval(std::move(values));
    if (!is_mean && figure.interval) figure.stderr_value = deviation;
  }
}

// If all completions are right, or all wrong, resamples have no spread; this then takes Wilson's interval over the
// problems.
Figure sampled_accuracy(Figure sampled, size_t num_problems, bool intervals) {
  const bool all_equal = sampled.value == 0 || sampled.value == 1;
  if (!intervals || !all_equal) return sampled;
  const Proportion share =
      proportion(sampled.value * static_cast<double>(num_problems), static_cast<int64_t>(num_problems));
  sampled.interval = {share.low, share.high};
  return sampled;
}

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json figure_json(const std::map<std::string, Figure>& figures, const std::function<Json(const Figure&)>& of) {
  Json out = JsonObject{};
  for (const auto& [name, figure] : figures) out.set(name, of(figure));
  return out;
}

Json value_json(const Figure& figure) { return figure.value; }
Json stderr_json(const Figure& figure) { return number_or_null(figure.stderr_value); }

}  // namespace

EvalResult summarize(EvalRun run, int64_t bootstrap_iters, int64_t seed) {
  EvalResult out;
  std::vector<const EvalSample*> ordered;
  std::map<std::string, std::vector<const EvalSample*>> by_subtask;
  for (const EvalSample& sample : run.samples) ordered.push_back(&sample);
  std::sort(ordered.begin(), ordered.end(), [](const EvalSample* a, const EvalSample* b) {
    return std::tie(a->hash, a->subtask, a->doc_id) < std::tie(b->hash, b->subtask, b->doc_id);
  });
  for (const EvalSample* sample : ordered)
    if (!sample->subtask.empty()) by_subtask[sample->subtask].push_back(sample);

  const Columns columns = columns_of(ordered);
  out.figures = figures_of(columns, run);
  for (const auto& [name, samples] : by_subtask) {
    out.subtasks[name] = figures_of(columns_of(samples), run);
    out.subtask_sizes[name] = count_problems(samples);
  }
  pool_stderrs(out, columns, run);
  if (bootstrap_iters > 0 && !ordered.empty()) bootstrap(out.figures, columns, run, bootstrap_iters, seed);

  out.num_problems = count_problems(ordered);
  out.num_tokens = run.num_tokens;
  out.metrics = std::move(run.facts);
  for (const auto& [name, figure] : out.figures) out.metrics[name] = figure.value;
  if (const auto primary = columns.find(run.primary); primary != columns.end()) {
    double right = 0;
    for (const Observation& one : primary->second.parts) right += one.value / one.weight;
    out.accuracy = proportion(right, static_cast<int64_t>(primary->second.parts.size()));
    out.accuracy->value = out.figures.at(run.primary).value;  // each row counts, also of one problem
  }
  if (const auto sampled = columns.find(run.sampled); sampled != columns.end())
    out.sampled_accuracy =
        sampled_accuracy(out.figures.at(run.sampled), sampled->second.parts.size(), bootstrap_iters > 0);
  std::stable_sort(run.samples.begin(), run.samples.end(),
                   [](const EvalSample& a, const EvalSample& b) { return a.doc_id < b.doc_id; });
  out.samples = std::move(run.samples);
  return out;
}

Json interval_json(const std::optional<Interval>& interval) {
  return interval ? Json(JsonArray{interval->low, interval->high}) : Json(nullptr);
}

Json EvalSample::to_json() const {
  Json out = JsonObject{{"doc_id", doc_id}, {"doc_hash", hash}, {"where", where}};
  if (!subtask.empty()) out.set("subtask", subtask);
  if (question_index > 0) out.set("question_index", question_index);
  out.set("prompt", prompt);
  out.set("target", target);
  for (const auto& [name, value] : details) out.set(name, value);
  Json values = JsonObject{}, weights = JsonObject{};
  for (const auto& [name, observation] : metrics) {
    values.set(name, observation.value);
    if (observation.weight != 1) weights.set(name, observation.weight);
  }
  out.set("metrics", values);
  if (!weights.as_object().empty()) out.set("weights", weights);
  return out;
}

Json EvalResult::to_json() const {
  Json out = JsonObject{
      {"task", task}, {"kind", kind}, {"num_problems", num_problems}, {"num_tokens", num_tokens}, {"seconds", seconds}};
  if (num_fewshot > 0) out.set("num_fewshot", num_fewshot);
  if (accuracy) {
    out.set("accuracy", accuracy->value);
    out.set("ci95", JsonArray{accuracy->low, accuracy->high});
  }
  if (sampled_accuracy)
    out.set("sampled_accuracy", sampled_accuracy->value),
        out.set("sampled_ci95", interval_json(sampled_accuracy->interval));
  Json values = JsonObject{};
  for (const auto& [name, value] : metrics) values.set(name, value);
  out.set("metrics", values);
  out.set("stderr", figure_json(figures, stderr_json));
  out.set("bootstrap95", figure_json(figures, [](const Figure& figure) { return interval_json(figure.interval); }));
  if (!subtasks.empty()) {
    Json parts = JsonObject{};
    for (const auto& [name, parts_figures] : subtasks)
      parts.set(name, JsonObject{{"num_problems", subtask_sizes.at(name)},
                                 {"metrics", figure_json(parts_figures, value_json)},
                                 {"stderr", figure_json(parts_figures, stderr_json)}});
    out.set("subtasks", parts);
  }
  return out;
}

}  // namespace hone
