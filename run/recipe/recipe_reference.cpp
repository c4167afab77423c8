#include "run/recipe/recipe_reference.h"

#include "collect/config.h"
#include "core/config/config.h"
#include "data/generator.h"
#include "eval/task.h"
#include "posttrain/rl/environments/environment.h"
#include "posttrain/rl/environments/tools/tool.h"
#include "rewards/reward.h"
#include "run/recipe/recipe.h"
#include "train/objective.h"
#include "train/optim/optimizer.h"
#include "train/stage.h"

namespace hone {
namespace {

constexpr const char* kIndex = R"(# Recipe keys

For someone who writes a recipe: every key with its type, default and meaning. `hone list recipe-keys --out
docs/reference/recipes` writes these pages from the program.

A recipe is a TOML file. Its keys outside of `[[stage]]` belong to the run. Its `[[stage]]` tables run in their order.
`hone run RECIPE.toml key=value ...` runs a recipe with overrides. An override names a key by its path, and a stage by
its name or index: `stage.grpo.steps=50`, `stage.0.vocab_size=512`. `${NAME}` in a string is the environment variable
NAME. An unknown key, and a value of the wrong type, are errors with file, line and column. The run folder holds the
resolved recipe: every key with the value that was used. [Resume a run](../../howto/resume-a-run.md) says which keys may
change when a run is resumed.

In the tables `a.b` is the key `b` of the table `a`, and `a[].b` the key `b` of each table of the array `a`. The keys of
an objective and of an optimizer stand in the stage, beside `objective` and `optimizer`. The keys of a reward stand in
the table `reward`, those of an environment in the table `environment`.

)";

// A page with a table of keys for each registered name.
template <class T>
ReferencePage registry_page(std::string file, const char* title, const char* introduction, const char* what,
                            const Registry<T>& registry) {
  std::string text = concat("# ", title, "\n\n", introduction, "\n");
  for (const std::string& name : registry.names()) {
    const auto thing = registry.at(name)();
    text += "\n" + document_fields(concat(what, " `", name, "`"), [&](Fields& f) { thing->fields(f); });
  }
  return {std::move(file), std::move(text)};
}

// A page with one table of keys.
template <class Settings>
ReferencePage settings_page(std::string file, const std::string& title, const std::string& introduction,
                            Settings& settings) {
  return {std::move(file), concat("# ", title, "\n\n", introduction, "\n\n",
                                  document_fields("Keys", [&](Fields& f) { settings.fields(f); }))};
}

// The index line of a page: its title with a link.
std::string index_line(const ReferencePage& page) {
  const std::string title = page.text.substr(2, page.text.find('\n') - 2);
  return concat("- [", title, "](", page.file, ")\n");
}

}  // namespace

std::vector<ReferencePage> recipe_reference() {
  std::vector<ReferencePage> out{{"README.md", kIndex}};
  Recipe recipe;
  out.push_back(settings_page("run.md", "The run",
                              "Keys of a recipe outside of `[[stage]]`: the run itself, `[model]`, `[rollout]` (the "
                              "inference engine) and `[[eval]]`.",
                              recipe));
  for (const std::string& name : stages().names()) {
    const auto stage = stages().at(name)();
    out.push_back(settings_page(concat("stage_", name, ".md"), concat("Stage `", name, "`"),
                                concat("Keys of a `[[stage]]` with `kind = \"", name, "\"`."), *stage));
  }
  out.push_back(registry_page("objectives.md", "Objectives",
                              "Keys of a `[[stage]]` beside `objective`. [Objectives](../../explain/objectives.md) has "
                              "the formulas.",
                              "Objective", objectives()));
  out.push_back(registry_page("optimizers.md", "Optimizers", "Keys of a `[[stage]]` beside `optimizer`.", "Optimizer",
                              optimizers()));
  out.push_back(registry_page("environments.md", "Environments",
                              "Keys of a table `environment` beside `kind` and the keys that all kinds share "
                              "([stage `rl`](stage_rl.md)). [Environments](../../howto/environments.md) says how they "
                              "are written.",
                              "Environment", environments()));
  out.push_back(registry_page("tools.md", "Tools",
                              "Keys of a table of `environment.tools` beside `kind`, for environments of the kind "
                              "`tools`. [Tools](../../howto/tools.md#built-in-tools) says what each does.",
                              "Tool", tools()));
  out.push_back(registry_page("rewards.md", "Rewards",
                              "Keys of the table `reward`. [Rewards](../rewards.md) says what each reward scores.",
                              "Reward", rewards()));
  out.push_back(registry_page("generators.md", "Generators",
                              "Keys of the table `generator`, beside its `kind`, and of `hone data generate`.",
                              "Generator", generators()));
  out.push_back(registry_page("tasks.md", "Task kinds",
                              "Keys of an evaluation task, a TOML file. [Evaluation](../../explain/evaluation.md) has "
                              "the figures of each kind.",
                              "Task kind", eval_kinds()));
  CollectConfig collect;
  out.push_back(settings_page("collect.md", "Collect",
                              "Keys of the TOML file that `hone collect` and `hone pairs` read. [Collect "
                              "data](../../howto/collect-data.md) says what the files hold.",
                              collect));
  for (size_t i = 1; i < out.size(); ++i) out.front().text += index_line(out[i]);
  return out;
}

}  // namespace hone
