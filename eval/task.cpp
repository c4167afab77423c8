#include "eval/task.h"

#include <algorithm>
#include <filesystem>

#include "core/base/stopwatch.h"
#include "core/config/config.h"
#include "core/io/file.h"

namespace hone {

void EvalOptions::fields(Fields& f) {
  f("limit", limit, "use only this many first problems; 0 = all");
  f("num_fewshot", num_fewshot, "examples before each question; -1 = the task's own number");
  f("apply_chat_template", apply_chat_template,
    "prompt in the model's chat format; a task with a format of its own keeps it");
  f("fewshot_as_multiturn", fewshot_as_multiturn,
    "with a chat format: make each example a user message and an assistant message");
  f("system_instruction", system_instruction,
    "system message in place of the task's; without a chat format, text before the prompt; empty = the task's own");
  chat.fields(f);
  f("samples", samples, "completions to sample for each problem, in addition to the greedy one; 0 = none");
  f("temperature", temperature, "softmax temperature of the sampled completions");
  f("seed", seed, "seed of sampling and of the bootstrap");
  f("bootstrap_iters", bootstrap_iters, "bootstrap resamples for confidence intervals; 0 = no intervals");
  f.require("limit", limit >= 0, "limit must be 0 or more");
  f.require("num_fewshot", num_fewshot >= -1 && num_fewshot <= 1024, "num_fewshot must be in [-1, 1024]");
  f.require("samples", samples >= 0 && samples <= 65536, "samples must be in [0, 65536]");
  f.require("temperature", temperature >= 0 && temperature <= 1e6, "temperature must be in [0, 1e6]");
  f.require("bootstrap_iters", bootstrap_iters >= 0 && bootstrap_iters <= 1'000'000,
            "bootstrap_iters must be in [0, 1000000]");
}

Registry<EvalKind>& eval_kinds() {
  static Registry<EvalKind> registry("task kind");
  return registry;
}

void EvalTaskSpec::fields(Fields& f) {
  f("name", name, "name of the task in reports");
  f("kind", kind, "kind of the task: generate | multiple_choice | loglikelihood | perplexity | group");
  if (f.reading()) {
    f.require("kind", eval_kinds().contains(kind), eval_kinds().unknown(kind));
    task = eval_kinds().at(kind)();
  }
  if (task) task->fields(f);
}

EvalResult EvalTaskSpec::evaluate(EvalTarget& target, const EvalOptions& options) const {
  const Stopwatch watch;
  EvalResult out = summarize(task->run(target, options), options.bootstrap_iters, options.seed);
  out.task = name;
  out.kind = kind;
  out.num_fewshot = task->num_fewshot(options);
  out.seconds = watch.seconds();
  return out;
}

// The working folder first, then the source tree of a build/<preset>/hone.
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
    const auto folder_with_task = std::find_if(folders.begin(), folders.end(), [&](const auto& folder) {
      return std::filesystem::exists(folder / (path + ".toml"));
    });
    HONE_CHECK(folder_with_task != folders.end(), "unknown task '", name_or_file,
               "': neither a file nor a name in configs/tasks", suggestion(name_or_file, known_eval_tasks()),
               "; known: ", join(known_eval_tasks()));
    path = (*folder_with_task / (path + ".toml")).string();
  }
  EvalTaskSpec spec = Config::from_file(path).as<EvalTaskSpec>();
  if (spec.name.empty()) spec.name = std::filesystem::path(path).stem().string();
  return spec;
}

}  // namespace hone
