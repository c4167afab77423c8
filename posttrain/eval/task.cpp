#include "posttrain/eval/task.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/config.h"
#include "core/file.h"
#include "core/json.h"

namespace hone {

void EvalOptions::fields(Fields& f) {
  f("limit", limit, "first problems only; 0 = all");
  f("samples", samples, "replies drawn for each problem besides the greedy one");
  f("temperature", temperature, "of those");
  f("seed", seed, "of the draws");
  f.require("limit", limit >= 0, "limit must be 0 or more");
  f.require("samples", samples >= 0 && samples <= 65536, "samples must be in [0, 65536]");
  f.require("temperature", temperature >= 0 && temperature <= 1e6, "temperature must be in [0, 1e6]");
}

// Wilson 1927: the interval of the score test, within [0, 1] for any count.
Proportion proportion(double successes, int64_t count) {
  if (count == 0) return {};
  constexpr double z = 1.959963984540054;
  const double n = static_cast<double>(count), p = successes / n, shrink = 1 + z * z / n;
  const double centre = (p + z * z / (2 * n)) / shrink, half = z / shrink * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return {p, std::max(0.0, centre - half), std::min(1.0, centre + half), count};
}

static Json interval(const Proportion& p) { return JsonArray{p.low, p.high}; }

Json EvalResult::to_json() const {
  Json out = JsonObject{{"task", task}, {"kind", kind}, {"num_problems", num_problems}, {"num_tokens", num_tokens}, {"seconds", seconds}};
  if (accuracy) out.set("accuracy", accuracy->value), out.set("ci95", interval(*accuracy));
  if (sampled_accuracy) out.set("sampled_accuracy", sampled_accuracy->value), out.set("sampled_ci95", interval(*sampled_accuracy));
  Json figures = JsonObject{};
  for (const auto& [name, value] : metrics) figures.set(name, value);
  out.set("metrics", figures);
  return out;
}

Registry<EvalKind>& eval_kinds() {
  static Registry<EvalKind> registry("task kind");
  return registry;
}

void EvalTaskSpec::fields(Fields& f) {
  f("name", name, "of the task in reports");
  f("kind", kind, "how it is evaluated (generate | multiple_choice | perplexity)");
  if (f.reading()) {
    f.require("kind", eval_kinds().contains(kind), eval_kinds().unknown(kind));
    task = eval_kinds().at(kind)();
  }
  if (task) task->fields(f);
}

// The working folder's tasks first; then those of the tree that a build/<preset>/hone belongs to.
static std::vector<std::filesystem::path> task_folders() {
  std::vector<std::filesystem::path> out{"configs/tasks"};
  std::error_code unknown;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", unknown);
  for (std::filesystem::path folder = binary.parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    out.push_back(folder / "configs" / "tasks");
  return out;
}

std::vector<std::string> known_eval_tasks() {
  for (const std::filesystem::path& folder : task_folders()) {
    if (!std::filesystem::is_directory(folder)) continue;
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".toml") out.push_back(entry.path().stem().string());
    std::sort(out.begin(), out.end());
    return out;
  }
  return {};
}

EvalTaskSpec load_eval_task(const std::string& name_or_file) {
  std::string path = expand_path(name_or_file);
  if (!std::filesystem::is_regular_file(path)) {
    const auto folders = task_folders();
    const auto holds =
        std::find_if(folders.begin(), folders.end(), [&](const auto& folder) { return std::filesystem::exists(folder / (path + ".toml")); });
    HONE_CHECK(holds != folders.end(), "unknown task '", name_or_file, "': no such file, and no such name in configs/tasks",
               suggestion(name_or_file, known_eval_tasks()), "; known: ", join(known_eval_tasks()));
    path = (*holds / (path + ".toml")).string();
  }
  EvalTaskSpec spec = Config::from_file(path).as<EvalTaskSpec>();
  if (spec.name.empty()) spec.name = std::filesystem::path(path).stem().string();
  return spec;
}

}  // namespace hone
