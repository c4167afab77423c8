#include "run/run_eval.h"

#include "core/base/log.h"

namespace hone {

std::vector<EvalResult> evaluate(Run& run, int64_t step) {
  std::vector<EvalResult> out;
  Metrics row;
  const EngineConfig engine = run.recipe.rollout.as_exact();  // the model itself is evaluated
  for (const EvalEntry& entry : run.recipe.eval) {
    const EvalTaskSpec spec = load_eval_task(entry.task);
    EvalTarget on{run.context, *run.model, *run.tokenizer, engine};
    EvalResult result = spec.evaluate(on, entry.options);
    result.samples.clear();
    const std::string prefix = "eval/" + spec.name + "/";
    if (result.accuracy) row[prefix + "accuracy"] = result.accuracy->value;
    if (result.sampled_accuracy) row[prefix + "sampled_accuracy"] = result.sampled_accuracy->value;
    for (const auto& [name, value] : result.metrics) row[prefix + name] = value;
    if (result.accuracy)
      log::info("eval ", spec.name, ": accuracy ", result.accuracy->value, " [", result.accuracy->low, ", ",
                result.accuracy->high, "] on ", result.num_problems, " problems");
    out.push_back(std::move(result));
  }
  if (!row.empty()) run.log.metrics(step, row);
  return out;
}

}  // namespace hone
