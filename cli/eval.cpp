#include <cstdio>

#include "cli/command.h"
#include "cli/model_arguments.h"
#include "core/file.h"
#include "core/jsonl.h"
#include "posttrain/eval/task.h"

namespace hone {
namespace {

class EvalCommand : public Command {
 public:
  std::string summary() const override { return "evaluate a model on a task"; }
  std::string example() const override { return "hone eval --model DIR --task gsm8k --limit 200 --out replies.jsonl --json"; }
  void arguments(Arguments& a) override {
    model_.arguments(a);
    a.option("task", task_, "a task's name (hone list tasks) or TOML file", true);
    a.option("limit", options_.limit, "first problems only; 0 = all");
    a.option("samples", options_.samples, "replies drawn for each problem besides the greedy one");
    a.option("temperature", options_.temperature, "of those");
    a.option("seed", options_.seed, "of the draws");
    a.option("out", out_, "JSON Lines, a row a problem");
    a.flag("json", json_, "print the result as one JSON object");
  }
  int run() override {
    require_valid([&](Fields& f) { options_.fields(f); });
    const EvalTaskSpec spec = load_eval_task(task_);
    model_.open();
    EvalModel on{model_.context(), model_.model(), model_.tokenizer(), {}, {}};
    std::unique_ptr<JsonlWriter> out;
    if (!out_.empty()) {
      out = std::make_unique<JsonlWriter>(expand_path(out_));
      on.record = [&](const Json& row) { out->write(row); };
    }
    EvalResult result = spec.task->run(on, options_);
    result.task = spec.name;
    if (out) out->flush();
    if (json_)
      std::printf("%s\n", result.to_json().dump().c_str());
    else
      print(result);
    return 0;
  }

 private:
  static void print(const EvalResult& result) {
    std::printf("%s: %lld problems in %.1f s\n", result.task.c_str(), static_cast<long long>(result.num_problems), result.seconds);
    const auto line = [](const char* what, const Proportion& p) {
      std::printf("  %-18s %6.2f%%  [%.2f, %.2f]\n", what, 100 * p.value, 100 * p.low, 100 * p.high);
    };
    if (result.accuracy) line("accuracy", *result.accuracy);
    if (result.sampled_accuracy) line("sampled accuracy", *result.sampled_accuracy);
    for (const auto& [name, value] : result.metrics) std::printf("  %-18s %.6g\n", name.c_str(), value);
  }
  ModelArguments model_;
  EvalOptions options_;
  std::string task_, out_;
  bool json_ = false;
};

[[maybe_unused]] const bool added = commands().add("eval", [] { return std::unique_ptr<Command>(new EvalCommand); });

}  // namespace
}  // namespace hone
