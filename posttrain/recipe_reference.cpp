#include "posttrain/recipe_reference.h"

#include "core/config.h"
#include "core/model/objective.h"
#include "core/optim/optimizer.h"
#include "posttrain/eval/task.h"
#include "posttrain/pairs.h"
#include "posttrain/recipe.h"
#include "posttrain/stage.h"
#include "pretrain/data/generator.h"
#include "rewards/reward.h"

namespace hone {
namespace {

constexpr const char* introduction = R"(# Recipes

A recipe is a TOML file: the keys of the run, then `[[stage]]`s in the order they are done. `hone run RECIPE.toml key=value ...` runs it; an override names a
key by its path, a stage by its name or place (`stage.grpo.steps=50`, `stage.0.vocab_size=512`). `${NAME}` in a string is the environment's. Unknown and
mistyped keys are errors with file, line and column. The resolved recipe is in the run folder.

This page is made from the program: `hone list recipe-keys > docs/recipes.md`.

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
  out += document("Stage", stages()) + document("Objective", objectives()) + document("Optimizer", optimizers()) + document("Reward", rewards()) +
         document("Generator", generators()) + document("Task kind", eval_kinds());
  PairSource pairs;
  out += document_fields("Pairs (`hone pairs`)", [&](Fields& f) { pairs.fields(f); }) + "\n";
  return out;
}

}  // namespace hone
