// hone run: runs a recipe or resumes a run.
#include "run/run.h"

#include <cstdio>

#include "cli/command.h"
#include "core/base/log.h"
#include "core/config/config.h"
#include "core/io/file.h"
#include "run/plan/memory_fit.h"
#include "run/plan/plan.h"
#include "run/rank_choice.h"
#include "run/recipe/check.h"
#include "run/report/report.h"
#include "run/watch/watch_server.h"

namespace hone {
namespace {

class RunCommand : public Command {
 public:
  std::string summary() const override { return "run a recipe, or resume a run"; }
  std::string example() const override {
    return "hone run configs/quickstart.toml seed=2 stage.grpo.steps=50\n  hone run --resume runs/quickstart";
  }
  void arguments(Arguments& a) override {
    a.positional("recipe", recipe_, "recipe (TOML file); not with --resume", false);
    a.rest("overrides", overrides_, "key=value that override the recipe: stage.grpo.steps=50");
    a.flag("dry-run", dry_run_, "check the recipe, print it with all defaults and its plan, and stop");
    a.option("resume", resume_, "folder of the run to resume");
    a.option("dashboard", dashboard_,
             "port of a live view of the run in a browser (hone watch) while it runs; 0 = any free port, -1 = none");
  }
  int run() override {
    require_usage(dashboard_ >= -1 && dashboard_ <= 65535, "--dashboard is ", dashboard_,
                  "; it must be in [0, 65535], or -1 for none");
    if (!resume_.empty()) {
      if (!recipe_.empty()) overrides_.insert(overrides_.begin(), recipe_);
      watch(expand_path(resume_));
      return finish(resume_run(expand_path(resume_), overrides_));
    }
    require_usage(!recipe_.empty(), "run: give a recipe, or --resume and a run folder");
    Recipe recipe = read_recipe(recipe_, overrides_);
    if (!dry_run_) return finish(run_recipe(recipe, [this](const std::filesystem::path& folder) { watch(folder); }));
    check_recipe(recipe);
    std::string fit;
    const std::vector<std::string> devices = choose_ranks(recipe).devices;
    if (recipe.device.limits_memory())
      fit = fit_text(fit_memory(recipe, memory_limit(recipe.device, ranks_per_device(devices)), devices.size()));
    const Json plan = plan_recipe(recipe, devices.size());
    std::printf("%s\n%s%s", recipe.toml().c_str(), plan_text(plan).c_str(), fit.c_str());
    return 0;
  }

 private:
  // A port that is taken must not cost the run.
  void watch(const std::filesystem::path& folder) {
    if (dashboard_ < 0) return;
    try {
      server_ = std::make_unique<WatchServer>(WatchConfig{.port = dashboard_}, std::vector{folder});
      log::info("dashboard: ", server_->url());
    } catch (const Error& error) {
      log::warning("dashboard: ", error.what(), "; the run goes on without it (hone watch ", folder.string(), ")");
    }
  }
  static int finish(const std::filesystem::path& folder) {
    const std::string report = (folder / "report.json").string();
    std::printf("%s\nreport: %s\npage: %s\n", report_table(parse_json(read_file(report), report)).c_str(),
                (folder / "report.md").c_str(), (folder / "report.html").c_str());
    return 0;
  }
  std::string recipe_, resume_;
  std::vector<std::string> overrides_;
  bool dry_run_ = false;
  int64_t dashboard_ = -1;
  std::unique_ptr<WatchServer> server_;
};

[[maybe_unused]] const bool added = commands().add("run", [] { return std::unique_ptr<Command>(new RunCommand); });

}  // namespace
}  // namespace hone
