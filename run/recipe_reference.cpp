#include "run/recipe_reference.h"

#include "core/config/config.h"
#include "data/generator.h"
#include "eval/task.h"
#include "posttrain/pairs.h"
#include "rewards/reward.h"
#include "run/recipe.h"
#include "train/objective.h"
#include "train/optim/optimizer.h"
#include "train/stage.h"

namespace hone {
namespace {

constexpr const char* introduction = R"(# Recipes

A recipe is a TOML file: the keys of the run, then `[[stage]]`s in the order they are done. `hone run RECIPE.toml key=value ...` runs it; an override names a
key by its path, a stage by its name or place (`stage.grpo.steps=50`, `stage.0.vocab_size=512`). `${NAME}` in a string is the environment's. Unknown and
mistyped keys are errors with file, line and column. The resolved recipe is in the run folder.

This page is made from the program: `hone list recipe-keys > docs/reference/recipes.md`.

## Going on with a run

A run saves and stops on Ctrl-C, SIGTERM and SIGHUP (a terminal that closes; under `nohup` the run goes on). `hone run --resume FOLDER key=value ...` goes on
from the newest checkpoint that is whole. One process at a time works on a run folder: it holds `FOLDER/lock` (flock), and a second one is refused with the
holder's host and process. The kernel releases the lock when the process ends, however it ends. Over NFS the lock reaches other hosts unless the mount keeps
locks to itself (`nolock`, `local_lock`); then only a note in the file says who was there, and what another host does cannot be seen.

The recipe is compared with the one that made what the folder holds (`run.json`). A key that may not change is an error with its name; every other change
is logged.

| part | may not change |
|---|---|
| the run, once a stage is done or evaluated | `seed`, `dtype`, `model` but for `save_dtype` and `lora.merge` |
| stages that are done | anything |
| the stage under way, once it has a checkpoint | its kind, name and objective; its data, templates and order; what makes up a step (`batch_size`, `packing`, `max_length`, `prompts_per_step`, `num_generations`, `num_iterations`, `num_mini_batches`, `max_staleness`); `optimizer`, `moments`, `critic.trunk` |

Free to change: where files lie (`path`, `config`, `files`, ...), which must hold the same; `steps`, learning rates, losses and their weights, sampling, rewards,
saving and logging of the stage under way; stages that have not begun; `[rollout]`, `[[eval]]`, `device`, `threads`, `numerics`.

)";

template <class T>
std::string document(const char* what, const Registry<T>& registry) {
  std::string out;
  for (const std::string& name : registry.names()) {
    const auto thing = registry.at(name)();
    out += document_fields(concat(what, " `", name, "`"), [&](Fields& f) { thing->fields(f); }) + "\n";
  }
  return out;
}

}  // namespace

std::string recipe_reference() {
  Recipe recipe;
  std::string out = introduction;
  out += document_fields("The run", [&](Fields& f) { recipe.fields(f); }) + "\n";
  out += document("Stage", stages()) + document("Objective", objectives()) + document("Optimizer", optimizers()) +
         document("Reward", rewards()) + document("Generator", generators()) + document("Task kind", eval_kinds());
  PairSource pairs;
  out += document_fields("Pairs (`hone pairs`)", [&](Fields& f) { pairs.fields(f); }) + "\n";
  return out;
}

}  // namespace hone
