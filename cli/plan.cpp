// hone plan: parameters, FLOPs, memory and time of a recipe.
#include "run/plan/plan.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "cli/bench/comm.h"
#include "cli/bench/machine_limits.h"
#include "cli/command.h"
#include "run/plan/memory_fit.h"
#include "run/rank_choice.h"
#include "run/recipe/check.h"

namespace hone {
namespace {

class PlanCommand : public Command {
 public:
  std::string summary() const override { return "plan a recipe: parameters, FLOPs, memory, exchanges and time"; }
  std::string example() const override {
    return "hone plan configs/quickstart.toml --json\n  hone plan recipe.toml device=cuda parallel.ranks=8 --gpu H200";
  }
  void arguments(Arguments& a) override {
    a.positional("recipe", recipe_, "recipe (TOML file)");
    a.rest("overrides", overrides_, "key=value that override the recipe: stage.grpo.steps=50");
    a.option("gpu", gpu_,
             "compute times with the data sheet of this GPU, as \"RTX 4090\"; empty = rates measured on the recipe's "
             "device, or those of an H100 if it is not there");
    a.option("link", link_,
             "GB/s that a rank receives while it sends as many; 0 = as --gpu says. The rate of hone bench comm");
    a.flag("json", json_, "print one JSON object");
  }
  int run() override {
    require_usage(link_ >= 0 && link_ <= 1e6, "plan: --link is ", link_, "; it must be in [0, 1e6] GB/s");
    std::optional<DeviceRates> named;
    if (!gpu_.empty()) named = gpu_rates(gpu_);
    Recipe recipe = read_recipe(recipe_, overrides_);
    check_recipe(recipe);
    const RankChoice ranks = choose_ranks(recipe);
    std::optional<MemoryFit> fit;
    if (recipe.device.limits_memory())
      fit = fit_memory(recipe, memory_limit(recipe.device, ranks_per_device(ranks.devices)), ranks.devices.size());
    Json plan = plan_recipe(recipe, ranks.devices.size());
    if (fit) plan.set("memory_fit", fit_json(*fit));
    DeviceRates rates = named ? *named : rates_of(recipe, ranks.devices);
    if (link_ > 0) rates.link_bandwidth = link_ * 1e9;
    add_times(plan, rates);
    if (json_) {
      std::printf("%s\n", plan.dump().c_str());
      return 0;
    }
    std::printf("%s%s", plan_text(plan).c_str(), fit ? fit_text(*fit).c_str() : "");
    for (const std::string& note : ranks.notes) std::printf("%s\n", note.c_str());
    return 0;
  }

 private:
  // Of the recipe's device if it is there.
  static DeviceRates rates_of(const Recipe& recipe, const std::vector<std::string>& devices) {
    const DeviceKind kind = device_kind(recipe.device.kind);
    const int64_t sharing = ranks_per_device(devices);
    if (kind == DeviceKind::cpu) {
      const MachineLimits limits = measure_limits(0.2);
      return measured_rates("this CPU", {.flops = cpu_flops_share * limits.flops, .memory = limits.read_bandwidth},
                            sharing);
    }
    if (kind == DeviceKind::cuda) {
      try {
        const std::unique_ptr<Device> device = open_device(devices.front());
        Context context(*device);
        const MachineLimits limits = measure_limits(context);
        return measured_rates(
            device->description(),
            {.flops = gpu_flops_share * limits.flops, .memory = limits.read_bandwidth, .link = measured_link(devices)},
            sharing);
      } catch (const Error&) {  // no such GPU here: its data sheet
      }
    }
    return gpu_rates("H100");
  }
  // Bytes per second that a rank receives in an exchange of large parts; 0 if all ranks share a device.
  static double measured_link(const std::vector<std::string>& devices) {
    if (ranks_per_device(devices) == std::ssize(devices)) return 0;
    double out = 0;
    for (const CommBench& row : bench_comm(devices, 0.02))
      if (row.what == "all_to_all") out = std::max(out, row.bytes_per_second);
    return out;
  }
  std::string recipe_;
  std::vector<std::string> overrides_;
  std::string gpu_;
  double link_ = 0;
  bool json_ = false;
};

[[maybe_unused]] const bool added = commands().add("plan", [] { return std::unique_ptr<Command>(new PlanCommand); });

}  // namespace
}  // namespace hone
