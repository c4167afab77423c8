#include "eval/output.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "core/base/format.h"
#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "core/io/svg.h"
#include "eval/page.h"

namespace hone {
namespace {

// "acc" is "acc,none", "exact_match,strict-match" stays; with `part` = "_stderr" it is "acc_stderr,none".
std::string key_of(const std::string& metric, const std::string& part) {
  const size_t comma = metric.find(',');
  return comma == std::string::npos ? metric + part + ",none" : metric.substr(0, comma) + part + metric.substr(comma);
}

Json figures_json(const std::string& alias, const std::map<std::string, Figure>& figures) {
  Json out = JsonObject{{"alias", alias}};
  for (const auto& [name, figure] : figures) {
    out.set(key_of(name, ""), figure.value);
    out.set(key_of(name, "_stderr"), figure.stderr_value ? Json(*figure.stderr_value) : Json(nullptr));
  }
  return out;
}

struct Drawing {
  std::string file, svg;
};

// Plots: the accuracies of all tasks, those of a task's subtasks, and pass@k and maj@k over k.
std::vector<Drawing> draw_charts(const std::vector<EvalResult>& results) {
  std::vector<Drawing> out;
  std::vector<Bar> accuracies;
  for (const EvalResult& result : results)
    if (result.accuracy)
      accuracies.push_back({result.task, result.accuracy->value, result.accuracy->low, result.accuracy->high});
  if (!accuracies.empty()) out.push_back({"accuracy.svg", svg_bars("accuracy, 95% Wilson interval", accuracies)});
  for (const EvalResult& result : results) {
    std::map<std::string, std::vector<Bar>> parts;
    for (const auto& [subtask, figures] : result.subtasks)
      for (const auto& [name, figure] : figures) parts[name].push_back({subtask, figure.value});
    for (const auto& [name, bars] : parts) {
      std::string file = result.task + "_" + name + ".svg";
      std::replace_if(
          file.begin(), file.end(), [](char c) { return c == ',' || c == '/' || c == '@'; }, '_');
      out.push_back({file, svg_bars(result.task + ": " + name, bars)});
    }
    std::vector<Curve> curves;
    for (const char* family : {"pass@", "maj@"}) {
      Curve curve{.name = family + std::string("k"), .points = {}, .band = {}};
      for (const auto& [name, figure] : result.figures)
        if (name.starts_with(family))
          curve.points.emplace_back(std::stod(name.substr(name.find('@') + 1)), figure.value);
      std::sort(curve.points.begin(), curve.points.end());
      if (curve.points.size() > 1) curves.push_back(std::move(curve));
    }
    if (!curves.empty())
      out.push_back({result.task + "_pass_at_k.svg", svg_chart(result.task + ": sampled completions", "k", curves)});
  }
  return out;
}

std::string stderr_text(const Figure& figure) {
  return figure.stderr_value ? format_text("%.4f", *figure.stderr_value) : "-";
}

std::string table_row(const std::array<std::string, 6>& cells) {
  return format_text("| %-32s | %6s | %-32s | %10s | %10s | %-20s |\n", cells[0].c_str(), cells[1].c_str(),
                     cells[2].c_str(), cells[3].c_str(), cells[4].c_str(), cells[5].c_str());
}

}  // namespace

std::string results_table(const std::vector<EvalResult>& results) {
  std::string out = table_row({"task", "n-shot", "metric", "value", "stderr", "bootstrap 95%"});
  out += "|" + std::string(34, '-') + "|" + std::string(7, '-') + ":|" + std::string(34, '-') + "|" +
         std::string(11, '-') + ":|" + std::string(11, '-') + ":|" + std::string(22, '-') + "|\n";
  for (const EvalResult& result : results) {
    std::string task = result.task, shots = std::to_string(result.num_fewshot);
    for (const auto& [name, figure] : result.figures) {
      out +=
          table_row({task, shots, name, format_text("%.4f", figure.value), stderr_text(figure),
                     figure.interval ? format_text("[%.4f, %.4f]", figure.interval->low, figure.interval->high) : "-"});
      task = shots = "";
    }
    for (const auto& [subtask, figures] : result.subtasks) {
      std::string part = "- " + subtask;
      for (const auto& [name, figure] : figures) {
        out += table_row({part, "", name, format_text("%.4f", figure.value), stderr_text(figure), ""});
        part = "";
      }
    }
  }
  return out;
}

std::string usage_table(const std::vector<EvalResult>& results) {
  const bool remote = std::any_of(results.begin(), results.end(),
                                  [](const EvalResult& result) { return result.metrics.contains("requests"); });
  std::string out = "| task                             | problems |  time (s) |     tokens |";
  if (remote) out += " prompt tokens |   cost | retries | failed |";
  out += "\n|----------------------------------|---------:|----------:|-----------:|";
  if (remote) out += "--------------:|-------:|--------:|-------:|";
  out += "\n";
  for (const EvalResult& result : results) {
    const auto number = [&](const char* name) {
      const auto found = result.metrics.find(name);
      return found == result.metrics.end() ? 0.0 : found->second;
    };
    out += format_text("| %-32s | %8lld | %9.1f | %10lld |", result.task.c_str(),
                       static_cast<long long>(result.num_problems), result.seconds,
                       static_cast<long long>(result.num_tokens));
    if (remote)
      out += format_text(" %13.0f | %6.4g | %7.0f | %6.0f |", number("prompt_tokens"), number("cost"),
                         number("retries"), number("failed"));
    out += "\n";
  }
  return out;
}

// What the report is of: model, date, version, command, and the settings that are not defaults.
static std::vector<std::pair<std::string, std::string>> about_of(const Json& config) {
  std::vector<std::pair<std::string, std::string>> out;
  const auto text = [](const Json& value) { return value.is_string() ? value.as_string() : value.dump(); };
  for (const char* name : {"model", "base_url", "date", "version", "command", "tasks"}) {
    const Json* value = config.is_object() ? config.find(name) : nullptr;
    if (!value) continue;
    if (std::string_view(name) == "date" && value->is_int()) {
      const auto seconds = static_cast<std::time_t>(value->as_int());
      std::tm parts{};
      char words[32];
      std::strftime(words, sizeof words, "%Y-%m-%d %H:%M UTC", gmtime_r(&seconds, &parts));
      out.emplace_back(name, words);
    } else {
      out.emplace_back(name, text(*value));
    }
  }
  std::string settings;
  if (config.is_object())
    for (const auto& [name, value] : config.as_object()) {
      const bool shown = std::any_of(out.begin(), out.end(), [&](const auto& one) { return one.first == name; });
      if (!shown) settings += (settings.empty() ? "" : ", ") + name + " = " + value.dump();
    }
  if (!settings.empty()) out.emplace_back("settings", settings);
  return out;
}

Json results_json(const std::vector<EvalResult>& results, const Json& config) {
  Json figures = JsonObject{}, groups = JsonObject{}, shots = JsonObject{}, better = JsonObject{},
       counts = JsonObject{}, details = JsonObject{};
  double seconds = 0;
  for (const EvalResult& result : results) {
    figures.set(result.task, figures_json(result.task, result.figures));
    shots.set(result.task, result.num_fewshot);
    Json higher = JsonObject{};
    for (const auto& [name, figure] : result.figures) higher.set(name, figure.higher_is_better);
    better.set(result.task, higher);
    counts.set(result.task, JsonObject{{"effective", result.num_problems}});
    details.set(result.task, result.to_json());
    seconds += result.seconds;
    JsonArray members;
    for (const auto& [subtask, parts] : result.subtasks) {
      const std::string name = result.kind == "group" ? subtask : result.task + "_" + subtask;
      figures.set(name, figures_json(" - " + subtask, parts));
      counts.set(name, JsonObject{{"effective", result.subtask_sizes.at(subtask)}});
      members.emplace_back(name);
    }
    if (!members.empty()) groups.set(result.task, std::move(members));
  }
  return JsonObject{
      {"results", figures},  {"group_subtasks", groups}, {"n-shot", shots}, {"higher_is_better", better},
      {"n-samples", counts}, {"config", config},         {"hone", details}, {"total_evaluation_time_seconds", seconds}};
}

void write_evaluation(const std::filesystem::path& folder, const std::vector<EvalResult>& results, const Json& config) {
  make_folder(folder);
  for (const EvalResult& result : results) {
    JsonlWriter samples(folder / ("samples_" + result.task + ".jsonl"));
    for (const EvalSample& sample : result.samples) samples.write(sample.to_json());
    samples.flush();
  }
  const auto about = about_of(config);
  std::string page = "# Evaluation\n\n";
  for (const auto& [name, value] : about) page += "- " + name + ": `" + value + "`\n";
  page += "\n" + results_table(results) + "\n" + usage_table(results) + "\n";
  std::vector<std::string> charts;
  for (const auto& [file, svg] : draw_charts(results)) {
    write_file_atomic(folder / file, svg);
    page += "![" + file + "](" + file + ")\n";
    charts.push_back(svg);
  }
  page += "\nSamples: [report.html](report.html) shows them; ";
  for (const EvalResult& result : results)
    page += "[samples_" + result.task + ".jsonl](samples_" + result.task + ".jsonl) ";
  write_file_atomic(folder / "report.md", page + "\n");
  write_file_atomic(folder / "report.html", html_page("Evaluation", results, charts, about));
  write_file_atomic(folder / "results.json", results_json(results, config).dump(2) + "\n");
}

}  // namespace hone
