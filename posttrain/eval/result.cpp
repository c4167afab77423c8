#include "posttrain/eval/result.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/parallel_for.h"

namespace hone {
namespace {

using Columns = std::map<std::string, std::vector<Observation>>;  // by figure, in the order of hashes

Columns columns_of(const std::vector<const EvalSample*>& samples) {
  Columns out;
  for (const EvalSample* sample : samples)
    for (const auto& [name, observation] : sample->metrics) out[name].push_back(observation);
  return out;
}

// The figure of the observations at `index` of each of 0 .. count - 1.
double figure_of(const std::vector<Observation>& column, bool exponent, size_t count, const std::function<size_t(size_t)>& index) {
  double value = 0, weight = 0;
  for (size_t i = 0; i < count; ++i) {
    const Observation& one = column[index(i)];
    value += one.value, weight += one.weight;
  }
  const double mean = weight > 0 ? value / weight : 0;
  return exponent ? std::exp(mean) : mean;
}

std::map<std::string, Figure> figures_of(const Columns& columns, const EvalRun& run) {
  std::map<std::string, Figure> out;
  for (const auto& [name, column] : columns) {
    Figure& figure = out[name];
    figure.value = figure_of(column, run.exponents.contains(name), column.size(), [](size_t i) { return i; });
    figure.interval = {figure.value, figure.value};
    figure.higher_is_better = !run.lower.contains(name);
    std::vector<double> values;
    for (const Observation& one : column) values.push_back(one.value);
    if (!run.exponents.contains(name) && std::all_of(column.begin(), column.end(), [](const Observation& one) { return one.weight == 1; }))
      figure.stderr_value = mean_stderr(values);
  }
  return out;
}

// One resample of the problems serves all figures of an iteration.
void bootstrap(std::map<std::string, Figure>& figures, const Columns& columns, const EvalRun& run, int64_t iterations, int64_t seed) {
  std::map<std::string, std::vector<double>> drawn;
  std::map<size_t, std::vector<std::string>> by_size;  // a figure that some problems lack is resampled among those that have it
  for (const auto& [name, column] : columns) drawn[name].resize(static_cast<size_t>(iterations)), by_size[column.size()].push_back(name);
  for (const auto& alike : by_size)
    parallel_for(iterations, 8, [&, size = alike.first](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const std::vector<int32_t> indices = resample(static_cast<int64_t>(size), seed, b);
        for (const std::string& name : alike.second)
          drawn.at(name)[static_cast<size_t>(b)] =
              figure_of(columns.at(name), run.exponents.contains(name), size, [&](size_t i) { return static_cast<size_t>(indices[i]); });
      }
    });
  for (auto& [name, values] : drawn) {
    Figure& figure = figures.at(name);
    if (figure.stderr_value == 0) figure.stderr_value = mean_stderr(values) * std::sqrt(static_cast<double>(values.size()));
    figure.interval = central_95(std::move(values));
  }
}

Json figure_json(const std::map<std::string, Figure>& figures, double Figure::*member) {
  Json out = JsonObject{};
  for (const auto& [name, figure] : figures) out.set(name, figure.*member);
  return out;
}

Json interval_json(const Interval& interval) { return JsonArray{interval.low, interval.high}; }

}  // namespace

EvalResult summarise(EvalRun run, int64_t bootstrap_iters, int64_t seed) {
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
    out.subtask_sizes[name] = static_cast<int64_t>(samples.size());
  }
  for (auto& [name, figure] : out.figures) {
    std::vector<double> stderrs;
    std::vector<int64_t> sizes;
    for (const auto& [subtask, figures] : out.subtasks)
      if (const auto found = figures.find(name); found != figures.end())
        stderrs.push_back(found->second.stderr_value), sizes.push_back(out.subtask_sizes.at(subtask));
    if (!sizes.empty()) figure.stderr_value = pooled_stderr(stderrs, sizes);
  }
  if (bootstrap_iters > 0 && !ordered.empty()) bootstrap(out.figures, columns, run, bootstrap_iters, seed);

  out.num_problems = static_cast<int64_t>(ordered.size());
  out.num_tokens = run.num_tokens;
  out.metrics = std::move(run.facts);
  for (const auto& [name, figure] : out.figures) out.metrics[name] = figure.value;
  if (const auto primary = columns.find(run.primary); primary != columns.end()) {
    double right = 0;
    for (const Observation& one : primary->second) right += one.value;
    out.accuracy = proportion(right, static_cast<int64_t>(primary->second.size()));
  }
  if (run.draws > 0) out.sampled_accuracy = proportion(run.successes, run.draws);
  std::stable_sort(run.samples.begin(), run.samples.end(), [](const EvalSample& a, const EvalSample& b) { return a.doc_id < b.doc_id; });
  out.samples = std::move(run.samples);
  return out;
}

Json EvalSample::to_json() const {
  Json out = JsonObject{{"doc_id", doc_id}, {"doc_hash", hash}, {"where", where}};
  if (!subtask.empty()) out.set("subtask", subtask);
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
  Json out = JsonObject{{"task", task}, {"kind", kind}, {"num_problems", num_problems}, {"num_tokens", num_tokens}, {"seconds", seconds}};
  if (num_fewshot > 0) out.set("num_fewshot", num_fewshot);
  if (accuracy) out.set("accuracy", accuracy->value), out.set("ci95", JsonArray{accuracy->low, accuracy->high});
  if (sampled_accuracy)
    out.set("sampled_accuracy", sampled_accuracy->value), out.set("sampled_ci95", JsonArray{sampled_accuracy->low, sampled_accuracy->high});
  Json values = JsonObject{}, intervals = JsonObject{};
  for (const auto& [name, value] : metrics) values.set(name, value);
  for (const auto& [name, figure] : figures) intervals.set(name, interval_json(figure.interval));
  out.set("metrics", values);
  out.set("stderr", figure_json(figures, &Figure::stderr_value));
  out.set("bootstrap95", intervals);
  if (!subtasks.empty()) {
    Json parts = JsonObject{};
    for (const auto& [name, parts_figures] : subtasks)
      parts.set(name, JsonObject{{"num_problems", subtask_sizes.at(name)},
                                 {"metrics", figure_json(parts_figures, &Figure::value)},
                                 {"stderr", figure_json(parts_figures, &Figure::stderr_value)}});
    out.set("subtasks", parts);
  }
  return out;
}

}  // namespace hone
