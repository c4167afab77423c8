#include "eval/compare.h"

#include <algorithm>
#include <map>

#include "core/base/format.h"
#include "core/base/suggest.h"
#include "core/io/jsonl.h"
#include "eval/result.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

struct Row {
  std::string subtask, hash, where;
  int64_t doc_id = 0;
  std::map<std::string, Observation> metrics;
};

std::vector<Row> read_rows_of(const fs::path& path) {
  std::vector<Row> out;
  JsonlReader reader(path);
  for (Json json; reader.next(json);) {
    const std::string where = reader.where();
    Row& row = out.emplace_back();
    row.where = where;
    row.doc_id = json.at("doc_id", where).as_int(where);
    row.hash = json.at("doc_hash", where).as_string(where);
    if (const Json* subtask = json.find("subtask")) row.subtask = subtask->as_string(where);
    const Json* weights = json.find("weights");
    for (const auto& [name, value] : json.at("metrics", where).as_object(where)) {
      const Json* weight = weights ? weights->find(name) : nullptr;
      row.metrics[name] = {value.as_double(where), weight ? weight->as_double(where) : 1};
    }
  }
  HONE_CHECK(!out.empty(), path.string(), ": the file has no samples");
  std::sort(out.begin(), out.end(), [](const Row& a, const Row& b) {
    return std::tie(a.subtask, a.hash, a.doc_id) < std::tie(b.subtask, b.hash, b.doc_id);
  });
  return out;
}

constexpr std::string_view prefix = "samples_";

// Sample files by task.
std::map<std::string, fs::path> sample_files(const fs::path& path) {
  std::map<std::string, fs::path> out;
  if (!fs::is_directory(path)) {
    HONE_CHECK(fs::exists(path), path.string(), ": no such file or folder");
    return {{"samples", path}};
  }
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().stem().string();
    if (name.starts_with(prefix) && entry.path().extension() == ".jsonl")
      out[name.substr(prefix.size())] = entry.path();
  }
  HONE_CHECK(!out.empty(), path.string(), ": the folder has no samples_TASK.jsonl");
  return out;
}

void check_match(const std::vector<Row>& first, const std::vector<Row>& second, const std::string& task) {
  for (size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    const Row &a = first[i], &b = second[i];
    HONE_CHECK(a.hash == b.hash && a.subtask == b.subtask, task,
               ": the samples are of different rows: ", std::min(a.where, b.where), " (",
               a.hash < b.hash ? a.hash : b.hash,
               ") has no match in the other evaluation; evaluate both on the same data with the same limit");
  }
  HONE_CHECK(first.size() == second.size(), task, ": ", first.size(), " samples and ", second.size(),
             ": a paired test needs the same rows; evaluate both with the same limit");
}

MetricComparison compare(const std::string& task, const std::string& metric, const std::vector<Row>& first,
                         const std::vector<Row>& second, int64_t iterations, int64_t seed) {
  MetricComparison out{.task = task, .metric = metric.ends_with("perplexity") ? "log " + metric : metric, .paired = {}};
  ProblemParts a, b;
  const Row* before = nullptr;
  for (size_t i = 0; i < first.size(); ++i) {
    const auto in_first = first[i].metrics.find(metric), in_second = second[i].metrics.find(metric);
    if (in_first == first[i].metrics.end() || in_second == second[i].metrics.end())
      continue;  // a group's tasks have different metrics
    const bool same_problem = before && before->hash == first[i].hash && before->subtask == first[i].subtask;
    a.add(in_first->second, same_problem);
    b.add(in_second->second, same_problem);
    before = &first[i];
  }
  const auto is_binary = [](const Observation& o) { return o.weight == 1 && (o.value == 0 || o.value == 1); };
  out.num_problems = static_cast<int64_t>(a.parts.size());
  out.paired = paired_bootstrap(a, b, iterations, seed);
  out.binary =
      std::all_of(a.parts.begin(), a.parts.end(), is_binary) && std::all_of(b.parts.begin(), b.parts.end(), is_binary);
  if (!out.binary) return out;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    out.only_first += a.parts[i].value > b.parts[i].value;
    out.only_second += b.parts[i].value > a.parts[i].value;
  }
  out.mcnemar_p = mcnemar_exact(out.only_first, out.only_second);
  return out;
}

std::vector<std::string> metrics_of(const std::vector<Row>& rows) {
  std::map<std::string, bool> names;
  for (const Row& row : rows)
    for (const auto& [name, observation] : row.metrics) names[name] = true;
  std::vector<std::string> out;
  for (const auto& [name, there] : names) out.push_back(name);
  return out;
}

}  // namespace

std::vector<MetricComparison> compare_evaluations(const fs::path& first, const fs::path& second, int64_t iterations,
                                                  int64_t seed) {
  const auto firsts = sample_files(first), seconds = sample_files(second);
  const auto task_names = [](const std::map<std::string, fs::path>& files) {
    std::vector<std::string> out;
    for (const auto& [task, file] : files) out.push_back(task);
    return out;
  };
  HONE_CHECK(task_names(firsts) == task_names(seconds), first.string(), " has samples of ", join(task_names(firsts)),
             "; ", second.string(), " of ", join(task_names(seconds)),
             ": the tasks must be the same (or give one samples file each)");
  std::vector<MetricComparison> out;
  for (const auto& [task, file] : firsts) {
    const std::vector<Row> a = read_rows_of(file), b = read_rows_of(seconds.at(task));
    check_match(a, b, task);
    const std::vector<std::string> others = metrics_of(b);
    const size_t before = out.size();
    for (const std::string& metric : metrics_of(a))
      if (std::binary_search(others.begin(), others.end(), metric))
        out.push_back(compare(task, metric, a, b, iterations, seed));
    HONE_CHECK(out.size() > before, task, ": the two evaluations have no metric in common");
  }
  return out;
}

Json MetricComparison::to_json() const {
  const auto number = [](const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); };
  Json out = JsonObject{{"task", task},
                        {"metric", metric},
                        {"num_problems", num_problems},
                        {"first", paired.first},
                        {"second", paired.second},
                        {"difference", paired.difference},
                        {"stderr", number(paired.stderr_value)},
                        {"bootstrap95", interval_json(paired.interval)},
                        {"p", number(paired.p)}};
  if (binary)
    out.set("mcnemar", JsonObject{{"only_first", only_first}, {"only_second", only_second}, {"p", mcnemar_p}});
  return out;
}

std::string comparison_table(const std::vector<MetricComparison>& comparisons) {
  std::string out = format_text("%-20s %-30s %6s %9s %9s %10s  %-20s %8s  %s\n", "task", "metric", "n", "first",
                                "second", "difference", "95% interval", "p", "McNemar");
  for (const MetricComparison& comparison : comparisons) {
    const PairedDifference& d = comparison.paired;
    const std::string interval = d.interval ? format_text("[%+.4f, %+.4f]", d.interval->low, d.interval->high) : "-";
    const std::string p = d.p ? format_text("%.4f", *d.p) : "-";
    out += format_text("%-20s %-30s %6lld %9.4f %9.4f %+10.4f  %-20s %8s  ", comparison.task.c_str(),
                       comparison.metric.c_str(), static_cast<long long>(comparison.num_problems), d.first, d.second,
                       d.difference, interval.c_str(), p.c_str());
    out += comparison.binary ? format_text("%lld : %lld, p = %.4f\n", static_cast<long long>(comparison.only_first),
                                           static_cast<long long>(comparison.only_second), comparison.mcnemar_p)
                             : "-\n";
  }
  return out;
}

}  // namespace hone
