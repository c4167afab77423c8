// Prompt, reply, verdict: the share of greedy replies that the reward gives full marks (threshold), and of drawn ones.
#include <algorithm>

#include "core/log.h"
#include "core/stopwatch.h"
#include "posttrain/actor.h"
#include "posttrain/dataset.h"
#include "posttrain/eval/task.h"

namespace hone {
namespace {

class Generate : public EvalTask {
 public:
  void fields(Fields& f) override {
    tasks_.fields(f);
    format_.fields(f);
    f("reward", reward_, "judges the replies");
    f("sampling", sampling_, "how replies are drawn; the greedy ones share its max_tokens and stop strings");
    f("threshold", threshold_, "a reply whose score reaches this is right");
    f.require("reward", reward_.reward != nullptr || !f.reading(), "the task needs a reward ([reward] kind = \"...\")");
  }

  EvalResult run(EvalModel& on, const EvalOptions& options) const override {
    const Stopwatch watch;
    TaskSource source = tasks_;
    if (options.limit > 0) source.rows.limit = options.limit;
    const std::vector<Task> tasks = load_tasks(source);
    ActorConfig greedy{.num_generations = 1, .sampling = sampling_, .format = format_, .reward = reward_};
    greedy.sampling.temperature = 0;
    EvalResult out;
    out.kind = "generate";
    out.num_problems = static_cast<int64_t>(tasks.size());
    out.accuracy = judge(on, tasks, greedy, out, "greedy");
    if (options.samples > 0) {
      ActorConfig drawn = greedy;
      drawn.num_generations = options.samples;
      drawn.sampling.temperature = options.temperature;
      drawn.sampling.seed = options.seed;
      out.sampled_accuracy = judge(on, tasks, drawn, out, "sampled");
    }
    out.seconds = watch.seconds();
    return out;
  }

 private:
  Proportion judge(EvalModel& on, const std::vector<Task>& tasks, const ActorConfig& config, EvalResult& out, const std::string& how) const {
    constexpr size_t at_once = 256;
    Actor actor(on.context, on.model, on.tokenizer, on.engine, config);
    log::Progress progress("eval " + how, static_cast<int64_t>(tasks.size()), "problem");
    double right = 0, length = 0, solved = 0, cut = 0;
    int64_t count = 0;
    for (size_t begin = 0; begin < tasks.size(); begin += at_once) {
      std::vector<const Task*> some;
      for (size_t i = begin; i < std::min(begin + at_once, tasks.size()); ++i) some.push_back(&tasks[i]);
      for (const Group& group : actor.gather(some, begin, 0)) {
        bool any = false;
        for (const Sample& sample : group.samples) {
          const bool correct = sample.reward >= threshold_;
          right += correct;
          any = any || correct;
          length += static_cast<double>(sample.completion.ids.size());
          cut += sample.completion.finish_reason == "length";
          ++count;
          if (on.record)
            on.record(JsonObject{{"task", group.task.id},
                                 {"how", how},
                                 {"prompt", group.task.prompt},
                                 {"completion", sample.completion.text},
                                 {"answer", group.task.answer},
                                 {"score", sample.reward},
                                 {"correct", correct},
                                 {"finish_reason", sample.completion.finish_reason}});
        }
        solved += any;
      }
      progress.update(static_cast<int64_t>(begin + some.size()));
    }
    out.num_tokens += static_cast<int64_t>(length);
    out.metrics[how + "/mean_length"] = length / static_cast<double>(count);
    out.metrics[how + "/clipped_ratio"] = cut / static_cast<double>(count);
    if (config.num_generations > 1) out.metrics["pass@" + std::to_string(config.num_generations)] = solved / static_cast<double>(tasks.size());
    if (actor.failed_replies() > 0) {
      out.metrics[how + "/failed"] = static_cast<double>(actor.failed_replies());
      log::warning("eval: ", actor.failed_replies(), " of ", count, " replies could not be sampled and count as wrong");
    }
    return proportion(right, count);
  }

  TaskSource tasks_;
  PromptFormat format_;
  RewardSpec reward_;
  Sampling sampling_;
  double threshold_ = 1;
};

[[maybe_unused]] const bool added = eval_kinds().add("generate", [] { return std::unique_ptr<EvalTask>(new Generate); });

}  // namespace
}  // namespace hone
