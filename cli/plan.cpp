#include <cstdio>

#include "cli/command.h"
#include "kernels/bench.h"
#include "posttrain/plan_recipe.h"

namespace hone {
namespace {

class PlanCommand : public Command {
 public:
  std::string summary() const override { return "what a recipe will cost: parameters, FLOPs, memory, time"; }
  std::string example() const override { return "hone plan configs/quickstart.toml --json"; }
  void arguments(Arguments& a) override {
    a.positional("recipe", recipe_, "recipe (TOML)");
    a.rest("overrides", overrides_, "key=value");
    a.flag("json", json_, "one JSON object");
  }
  int run() override {
    Json plan = plan_recipe(read_recipe(recipe_, overrides_));
    add_times(plan, measure_limits(0.2).flops);
    std::printf("%s", json_ ? (plan.dump() + "\n").c_str() : plan_text(plan).c_str());
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
