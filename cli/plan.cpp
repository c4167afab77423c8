// hone plan: parameters, FLOPs, memory and time of a recipe.
#include "run/plan.h"

#include <cstdio>
#include <optional>

#include "cli/bench/machine_limits.h"
#include "cli/command.h"
#include "run/check.h"
#include "run/memory_fit.h"

namespace hone {
namespace {

class PlanCommand : public Command {
 public:
  std::string summary() const override { return "plan a recipe: parameters, FLOPs, memory and time"; }
  std::string example() const override { return "hone plan configs/quickstart.toml --json"; }
  void arguments(Arguments& a) override {
    a.positional("recipe", recipe_, "recipe (TOML file)");
    a.rest("overrides", overrides_, "key=value that override the recipe: stage.grpo.steps=50");
    a.flag("json", json_, "print one JSON object");
  }
  int run() override {
    Recipe recipe = read_recipe(recipe_, overrides_);
    check_recipe(recipe);
    std::optional<MemoryFit> fit;
    if (recipe.device.limits_memory()) fit = fit_memory(recipe, memory_limit(recipe.device));
    Json plan = plan_recipe(recipe);
    if (fit) plan.set("memory_fit", fit_json(*fit));
    const DeviceKind kind = device_kind(recipe.device.kind);
    if (kind == DeviceKind::cpu) {
      add_times(plan, measure_limits(0.2).flops);
    } else if (kind != DeviceKind::meta) {
      try {
        const std::unique_ptr<Device> device = open_device(recipe.device.kind);
        Context context(*device);
        add_times(plan, measure_limits(context).flops);
      } catch (const Error&) {  // a plan for a GPU on a machine without one has memory and FLOPs, but no times
      }
    }
    if (json_)
      std::printf("%s\n", plan.dump().c_str());
    else
      std::printf("%s%s", plan_text(plan).c_str(), fit ? fit_text(*fit).c_str() : "");
    return 0;
  }

 private:
  std::string recipe_;
  std::vector<std::string> overrides_;
  bool json_ = false;
};

[[maybe_unused]] const bool added = commands().add("plan", [] { return std::unique_ptr<Command>(new PlanCommand); });

}  // namespace
}  // namespace hone
