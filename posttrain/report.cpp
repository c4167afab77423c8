#include "posttrain/report.h"

#include <algorithm>
#include <deque>
#include <map>

#include "core/file.h"
#include "core/format.h"
#include "core/jsonl.h"
#include "posttrain/svg.h"

namespace hone {
namespace {

// The figures of one evaluation that a stage is known by: those of the first task that has an accuracy.
void add_accuracy(Json& out, const Json& results) {
  for (const Json& result : results.as_array("eval")) {
    if (!result.find("accuracy")) continue;
    for (const char* name : {"accuracy", "ci95", "sampled_accuracy", "sampled_ci95"})
      if (const Json* value = result.find(name)) out.set(name, *value);
    return;
  }
}

// Every metric's points over the run's steps.
std::map<std::string, Curve> read_curves(const std::filesystem::path& path) {
  std::map<std::string, Curve> out;
  if (!std::filesystem::exists(path)) return out;
  read_jsonl(path, [&](const Json& row, int64_t) {
    const double step = row.at("step").as_double();
    for (const auto& [name, value] : row.as_object())
      if (name != "step" && value.is_number()) out[name].points.emplace_back(step, value.as_double());
  });
  for (auto& [name, curve] : out) curve.name = name;
  return out;
}

std::string percent(const Json& entry, const char* value, const char* interval) {
  const Json* v = entry.find(value);
  if (!v) return "-";
  const JsonArray& ends = entry.at(interval).as_array(interval);
  HONE_CHECK(ends.size() == 2, "run.json: ", interval, " has ", ends.size(), " ends");
  return format_text("%.1f%% [%.1f, %.1f]", 100 * v->as_double(), 100 * ends[0].as_double(), 100 * ends[1].as_double());
}

// The cells of the table, a row a stage, the state before the first one on top.
std::vector<std::vector<std::string>> table_rows(const Json& report) {
  std::vector<std::vector<std::string>> rows{{"stage", "greedy accuracy", "sampled accuracy", "steps", "tokens", "seconds"}};
  const JsonArray& stages = report.at("stages").as_array();
  if (const Json* before = stages.empty() ? nullptr : stages.front().find("before"))
    rows.push_back({"(start)", percent(*before, "accuracy", "ci95"), percent(*before, "sampled_accuracy", "sampled_ci95"), "", "", ""});
  for (const Json& stage : stages)
    rows.push_back({stage.at("name").as_string(), percent(stage, "accuracy", "ci95"), percent(stage, "sampled_accuracy", "sampled_ci95"),
                    std::to_string(stage.at("steps").as_int()), std::to_string(stage.at("tokens").as_int()),
                    format_text("%.1f", stage.at("seconds").as_double())});
  return rows;
}

// A fence that the text itself does not hold.
std::string fenced(const std::string& text) {
  std::string fence = "```";
  while (text.find(fence) != std::string::npos) fence += '`';
  return fence + "\n" + text + "\n" + fence + "\n";
}

std::string sample_text(const std::filesystem::path& path) {
  constexpr size_t shown = 8;
  if (!std::filesystem::exists(path)) return "";
  std::deque<Json> last;
  read_jsonl(path, [&](const Json& row, int64_t) {
    last.push_back(row);
    if (last.size() > shown) last.pop_front();
  });
  if (last.empty()) return "";
  std::string out = "\n## Samples\n\nThe last replies that were sampled in training (all that were kept: samples.jsonl).\n\n";
  for (const Json& row : last)
    out += fenced(row.at("prompt").as_string() + " ~> " + row.at("completion").as_string()) + "reward " + number_text(row.at("reward").as_double()) +
           ", answer `" + row.at("answer").as_string() + "`\n\n";
  return out;
}

std::string markdown(const Json& report, const std::vector<std::string>& charts, const std::filesystem::path& folder) {
  std::string out =
      "# " + report.at("name").as_string() + "\n\nAccuracies with their 95% Wilson intervals, on held-out problems, after each stage.\n\n";
  const auto rows = table_rows(report);
  for (size_t r = 0; r < rows.size(); ++r) {
    out += "|";
    for (const std::string& words : rows[r]) out += " " + words + " |";
    out += "\n";
    if (r == 0) out += "|---|---|---|---:|---:|---:|\n";
  }
  out += "\n## Curves\n\nOver the optimizer steps of all stages.\n\n";
  for (const std::string& chart : charts) out += "![" + chart + "](" + chart + ".svg)\n";
  return out + sample_text(folder / "samples.jsonl");
}

}  // namespace

Json write_report(const std::filesystem::path& folder) {
  const std::string path = (folder / "run.json").string();
  const Json state = parse_json(read_file(path), path);
  Json before = JsonObject{};
  add_accuracy(before, state.at("initial", path));
  JsonArray stages, preparation;
  for (const Json& done : state.at("stages", path).as_array(path)) {
    if (done.at("eval", path).as_array(path).empty() && done.at("steps", path).as_int(path) == 0) {
      preparation.push_back(done);
      continue;
    }
    Json stage = done, after = JsonObject{};
    add_accuracy(after, done.at("eval", path));
    for (const auto& [name, value] : after.as_object()) stage.set(name, value);
    stage.set("before", before);
    before = after;
    stages.push_back(std::move(stage));
  }
  const Json report = JsonObject{{"name", state.at("name", path)},
                                 {"finished", state.at("stages_done", path) == state.at("num_stages", path)},
                                 {"stages", stages},
                                 {"preparation", preparation}};

  const std::map<std::string, Curve> curves = read_curves(folder / "metrics.jsonl");
  std::vector<std::string> charts;
  const auto draw = [&](const std::string& file, const std::string& title, const std::vector<std::string>& names) {
    std::vector<Curve> shown;
    for (const std::string& name : names)
      if (const auto found = curves.find(name); found != curves.end()) shown.push_back(found->second);
    if (shown.empty()) return;
    write_file_atomic(folder / (file + ".svg"), svg_chart(title, "step", shown));
    charts.push_back(file);
  };
  draw("loss", "loss", {"loss"});
  draw("reward", "reward", {"reward"});
  std::vector<std::string> accuracies;
  for (const auto& [name, curve] : curves)
    if (name.starts_with("eval/") && name.ends_with("accuracy")) accuracies.push_back(name);
  draw("accuracy", "accuracy", accuracies);
  draw("length", "mean length of completions", {"completions/mean_length"});
  draw("grad_norm", "gradient norm", {"grad_norm"});
  draw("learning_rate", "learning rate", {"learning_rate"});
  write_file_atomic(folder / "report.json", report.dump(2) + "\n");
  write_file_atomic(folder / "report.md", markdown(report, charts, folder));
  return report;
}

std::string report_table(const Json& report) {
  const auto rows = table_rows(report);
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string out;
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c)
      out += (c < 3 ? row[c] + std::string(widths[c] - row[c].size(), ' ') : std::string(widths[c] - row[c].size(), ' ') + row[c]) + "  ";
    out += "\n";
  }
  return out;
}

}  // namespace hone
