#include "run/report.h"

#include <algorithm>
#include <deque>
#include <map>

#include "core/base/format.h"
#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "core/io/svg.h"
#include "run/curves.h"

namespace hone {
namespace {

// Copies the main figures of an evaluation: those of the first task with an accuracy, and the bits per byte of each
// task.
void add_figures(Json& out, const Json& results) {
  JsonObject bits;
  for (const Json& result : results.as_array("eval")) {
    if (result.find("accuracy") && !out.find("accuracy"))
      for (const char* name : {"accuracy", "ci95", "sampled_accuracy", "sampled_ci95"})
        if (const Json* value = result.find(name)) out.set(name, *value);
    const Json* metrics = result.find("metrics");
    if (const Json* value = metrics ? metrics->find("bits_per_byte") : nullptr)
      bits.emplace_back(result.at("task").as_string(), *value);
  }
  if (!bits.empty()) out.set("bits_per_byte", std::move(bits));
}

// The points of every metric over the steps of the run.
std::map<std::string, Curve> read_curves(const std::filesystem::path& path) {
  std::map<std::string, Curve> out;
  if (!std::filesystem::exists(path)) return out;
  read_jsonl(path, [&](const Json& row, int64_t line) {
    const std::string where = concat(path.string(), ":", line);
    const double step = row.at("step", where).as_double(where + ": step");
    for (const auto& [name, value] : row.as_object())
      if (name != "step" && value.is_number())
        out[current_metric_name(name)].points.emplace_back(step, value.as_double());
  });
  for (auto& [name, curve] : out) curve.name = name;
  return out;
}

std::string percent(const Json& entry, const char* value, const char* interval) {
  const Json* v = entry.find(value);
  if (!v) return "-";
  const Json& found = entry.at(interval);
  if (found.is_null()) return format_text("%.1f%%", 100 * v->as_double());
  const JsonArray& ends = found.as_array(interval);
  HONE_CHECK(ends.size() == 2, "run.json: ", interval, " has ", ends.size(), " ends");
  return format_text("%.1f%% [%.1f, %.1f]", 100 * v->as_double(), 100 * ends[0].as_double(), 100 * ends[1].as_double());
}

// One row per stage, below the row of the model before the first one. Empty columns are left out.
struct Table {
  std::vector<std::vector<std::string>> rows;
  size_t text_columns = 0;  // the first columns; the others are numbers
};

Table make_table(const Json& report) {
  const JsonArray& stages = report.at("stages").as_array();
  std::vector<std::pair<std::string, const Json*>> entries;
  if (const Json* before = stages.empty() ? nullptr : stages.front().find("before"))
    entries.emplace_back("(start)", before);
  for (const Json& stage : stages) entries.emplace_back(stage.at("name").as_string(), &stage);
  const bool accuracy =
      std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.second->find("accuracy"); });
  std::vector<std::string> tasks;  // with bits per byte
  for (const auto& [name, entry] : entries)
    if (const Json* bits = entry->find("bits_per_byte"); bits && tasks.empty())
      for (const auto& [task, value] : bits->as_object()) tasks.push_back(task);

  Table out{{{"stage"}}, 1};
  if (accuracy) out.rows[0].insert(out.rows[0].end(), {"greedy accuracy", "sampled accuracy"}), out.text_columns = 3;
  for (const std::string& task : tasks) out.rows[0].push_back(task + " bits/byte");
  out.rows[0].insert(out.rows[0].end(), {"steps", "tokens", "seconds"});
  for (const auto& [name, entry] : entries) {
    std::vector<std::string> row{name};
    if (accuracy)
      row.insert(row.end(), {percent(*entry, "accuracy", "ci95"), percent(*entry, "sampled_accuracy", "sampled_ci95")});
    const Json* bits = entry->find("bits_per_byte");
    for (const std::string& task : tasks) {
      const Json* value = bits ? bits->find(task) : nullptr;
      row.push_back(value ? format_text("%.4f", value->as_double()) : "-");
    }
    if (entry->find("steps"))
      row.insert(row.end(), {std::to_string(entry->at("steps").as_int()), std::to_string(entry->at("tokens").as_int()),
                             format_text("%.1f", entry->at("seconds").as_double())});
    row.resize(out.rows[0].size());
    out.rows.push_back(std::move(row));
  }
  return out;
}

// The text in a fence that does not occur in it.
std::string fenced(const std::string& text) {
  std::string fence = "```";
  while (text.find(fence) != std::string::npos) fence += '`';
  return fence + "\n" + text + "\n" + fence + "\n";
}

std::string sample_text(const std::filesystem::path& path) {
  constexpr size_t shown = 8;
  if (!std::filesystem::exists(path)) return "";
  std::deque<Json> last;  // one completion of a prompt
  const auto same = [](const Json& a, const Json& b, const char* member) {
    const Json *of_a = a.find(member), *of_b = b.find(member);
    return of_a && of_b && *of_a == *of_b;
  };
  read_jsonl(path, [&](const Json& row, int64_t) {
    if (!last.empty() && same(last.back(), row, "step") && same(last.back(), row, "task")) return;
    last.push_back(row);
    if (last.size() > shown) last.pop_front();
  });
  if (last.empty()) return "";
  std::string out = "\n## Samples\n\nOne completion each of the last prompts in training (samples.jsonl has more).\n\n";
  for (const Json& row : last) {
    const Json& reward = row.at("reward");  // null: the completion has no score
    out += fenced(row.at("prompt").as_string() + " ~> " + row.at("completion").as_string()) + "reward " +
           (reward.is_null() ? "none" : number_text(reward.as_double())) + ", answer `" + row.at("answer").as_string() +
           "`\n\n";
  }
  return out;
}

std::string markdown(const Json& report, const std::vector<std::string>& charts, const std::filesystem::path& folder) {
  std::string out = "# " + report.at("name").as_string() +
                    "\n\nOn held-out data, after each stage; accuracies with their 95% intervals: Wilson's over the "
                    "problems for greedy replies, resampled problems for sampled ones.\n\n";
  const Table table = make_table(report);
  for (size_t r = 0; r < table.rows.size(); ++r) {
    out += "|";
    for (const std::string& words : table.rows[r]) out += " " + words + " |";
    out += "\n";
    if (r > 0) continue;
    out += "|";
    for (size_t c = 0; c < table.rows[0].size(); ++c) out += c < table.text_columns ? "---|" : "---:|";
    out += "\n";
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
  add_figures(before, state.at("initial", path));
  JsonArray stages, preparation;
  for (const Json& done : state.at("stages", path).as_array(path)) {
    if (done.at("eval", path).as_array(path).empty() && done.at("steps", path).as_int(path) == 0) {
      preparation.push_back(done);
      continue;
    }
    Json stage = done, after = JsonObject{};
    add_figures(after, done.at("eval", path));
    for (const auto& [name, value] : after.as_object()) stage.set(name, value);
    stage.set("before", before);
    before = after;
    stages.push_back(std::move(stage));
  }
  Json report = JsonObject{{"name", state.at("name", path)},
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
  std::vector<std::string> bits;
  for (const auto& [name, curve] : curves)
    if (name.starts_with("eval/") && name.ends_with("bits_per_byte")) bits.push_back(name);
  draw("bits_per_byte", "bits per byte", bits);
  draw("length", "mean length of completions", {"completions/mean_length"});
  draw("grad_norm", "gradient norm", {"grad_norm"});
  draw("learning_rate", "learning rate", {"learning_rate"});
  write_file_atomic(folder / "report.json", report.dump(2) + "\n");
  write_file_atomic(folder / "report.md", markdown(report, charts, folder));
  return report;
}

std::string report_table(const Json& report) {
  const Table table = make_table(report);
  std::vector<size_t> widths(table.rows[0].size());
  for (const auto& row : table.rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string out;
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - row[c].size(), ' ');
      out += (c < table.text_columns ? row[c] + space : space + row[c]) + "  ";
    }
    out += "\n";
  }
  return out;
}

}  // namespace hone
