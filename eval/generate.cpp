// Prompt, reply, verdict. A reply is judged by the task's reward, by answer filters (exact_match,NAME), or both; the
// accuracy is the reward's where there is one, else the first filter's. Of drawn replies: pass@k, maj@k and mean@k.
#include <algorithm>

#include "core/base/log.h"
#include "data/row_template.h"
#include "eval/extraction.h"
#include "eval/prompts.h"
#include "eval/task.h"
#include "posttrain/rl/collector.h"

namespace hone {
namespace {

// What the filters say, as a reward: that of a task that names none.
class FilterReward : public Reward {
 public:
  FilterReward(AnswerFilter filter, ExactMatch match) : filter_(std::move(filter)), match_(std::move(match)) {}
  RewardScore score(const Task& task, const Completion& completion) const override {
    return {.score = match_(filter_.extract(completion.text), task.answer) ? 1.0 : 0.0};
  }
  bool reads_answers(const Task&) const override { return true; }
  std::optional<std::string> read_answer(const Task&, const Completion& completion) const override {
    const std::string answer = filter_.extract(completion.text);
    return filter_.found(answer) ? std::optional(answer) : std::nullopt;
  }
  bool same_answers(const Task&, const std::string& a, const std::string& b) const override { return match_(a, b); }

 private:
  AnswerFilter filter_;
  ExactMatch match_;
};

// 1, 2, 4, ... and n itself.
std::vector<int64_t> powers_up_to(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t k = 1; k < n; k *= 2) out.push_back(k);
  out.push_back(n);
  return out;
}

class Generate : public EvalTask {
 public:
  void fields(Fields& f) override {
    source_.fields(f);
    f("answer", answer_, "template of the reference answer; empty = none");
    f("reward", reward_, "judges the replies");
    f("threshold", threshold_, "a reply whose score reaches this is right");
    f("filters", filters_, "how an answer is read out of a reply, for exact_match");
    match_.fields(f);
    f("sampling", sampling_, "how replies are drawn; the greedy ones share its max_tokens and stop strings");
    f.require("reward", reward_.reward != nullptr || !filters_.empty() || !f.reading(),
              "the task needs a reward ([reward] kind = \"...\") or filters");
  }
  void check() const override { reward_.check(); }
  void each_row(const std::function<void(const Json&, const std::string&)>& row) const override {
    read_rows(source_.rows, row);
  }
  int64_t num_fewshot(const EvalOptions& options) const override { return source_.shots(options); }

  EvalRun run(EvalTarget& on, const EvalOptions& options) const override {
    const auto target_of = [&](const Json& row, const std::string& where) {
      return " " + fill_template(answer_, row, where);
    };
    const std::vector<EvalExample> docs = source_.load(options, target_of);
    const PromptRenderer renderer(source_, options);
    EvalRun out;
    std::vector<Task> tasks = fitting_tasks(on, docs, renderer, out);
    CollectorConfig greedy{.num_generations = 1, .sampling = sampling_, .format = renderer.format(), .reward = judge()};
    greedy.sampling.temperature = 0;
    for (size_t i = 0; i < docs.size(); ++i) {
      if (!answer_.empty()) tasks[i].answer = fill_template(answer_, docs[i].row, docs[i].where);
      EvalSample& sample = out.samples.emplace_back(make_sample(docs[i]));
      sample.prompt = PromptRenderer::shown(tasks[i]);
      sample.target = tasks[i].answer;
    }
    ask(on, docs, tasks, greedy, "greedy", out,
        [&](EvalSample& sample, const Group& group) { add_greedy(sample, group); });
    if (options.samples > 0) {
      CollectorConfig drawn = greedy;
      drawn.num_generations = options.samples;
      drawn.sampling.temperature = options.temperature;
      drawn.sampling.seed = options.seed;
      out.sampled = "mean@" + std::to_string(options.samples);
      ask(on, docs, tasks, drawn, "sampled", out, [&](EvalSample& sample, const Group& group) {
        add_sampled(sample, group, *drawn.reward.reward, out.sampled);
      });
    }
    out.primary = reward_.reward ? "accuracy" : "exact_match," + filters_.front().name;
    return out;
  }

 private:
  RewardSpec judge() const {
    if (reward_.reward) return reward_;
    RewardSpec out;
    out.kind = "exact_match";
    out.reward = std::make_shared<FilterReward>(filters_.front(), match_);
    return out;
  }

  // A prompt that leaves no room for the reply loses its first examples, whole.
  std::vector<Task> fitting_tasks(const EvalTarget& on, const std::vector<EvalExample>& docs,
                                  const PromptRenderer& renderer, EvalRun& out) const {
    PromptEncoder encoder(renderer.format(), on.tokenizer);
    const int64_t room = std::max<int64_t>(1, on.model.shape().max_positions - sampling_.max_tokens);
    std::vector<Task> tasks;
    int64_t cut = 0;
    for (const EvalExample& doc : docs) {
      size_t skipped = 0;
      tasks.push_back(renderer.task(doc));
      while (skipped < doc.shots.size() && static_cast<int64_t>(encoder.prompt(tasks.back()).size()) > room)
        tasks.back() = renderer.task(doc, ++skipped);
      cut += skipped > 0;
    }
    if (cut > 0) {
      out.facts["cut"] = static_cast<double>(cut);
      log::warning("eval: ", cut, " of ", docs.size(), " prompts lost examples to fit into the model's ",
                   on.model.shape().max_positions, " positions");
    }
    return tasks;
  }

  // Replies to all tasks, drawn by the rows' hashes, so that the order of rows does not matter; take(sample, group) for
  // each.
  static void ask(EvalTarget& on, const std::vector<EvalExample>& docs, const std::vector<Task>& tasks,
                  const CollectorConfig& config, const std::string& how, EvalRun& out,
                  const std::function<void(EvalSample&, const Group&)>& take) {
    LocalBackend sampler(on.context, on.model, on.tokenizer, on.engine);
    Collector actor(sampler, on.tokenizer, config);
    std::vector<uint64_t> ids;
    for (const EvalExample& doc : docs) ids.push_back(doc.hash);
    double length = 0, cut = 0, unjudged = 0, count = 0;
    collect_all(actor, tasks, ids, "eval " + how, [&](size_t i, const Group& group) {
      take(out.samples[i], group);
      for (const Sample& reply : group.samples) {
        length += static_cast<double>(reply.completion.ids.size());
        cut += reply.completion.finish_reason == "length";
        unjudged += !reply.scored;
        ++count;
      }
    });
    out.num_tokens += static_cast<int64_t>(length);
    out.facts[how + "/mean_length"] = length / count;
    out.facts[how + "/clipped_ratio"] = cut / count;
    if (actor.failed_completions() > 0) out.facts[how + "/failed"] = static_cast<double>(actor.failed_completions());
    if (unjudged > 0) {
      out.facts[how + "/unjudged"] = unjudged;
      log::warning("eval: ", static_cast<int64_t>(unjudged), " of ", static_cast<int64_t>(count),
                   " replies could not be sampled or judged and count as wrong");
    }
  }

  bool right(const Sample& reply) const { return reply.scored && reply.reward >= threshold_; }

  void add_greedy(EvalSample& sample, const Group& group) const {
    const Sample& reply = group.samples.front();
    const std::string& text = reply.completion.text;
    if (reward_.reward) sample.metrics["accuracy"] = {right(reply) ? 1.0 : 0.0};
    Json answers = JsonObject{};
    for (const AnswerFilter& filter : filters_) {
      const std::string answer = filter.extract(text);
      sample.metrics["exact_match," + filter.name] = {match_(answer, sample.target) ? 1.0 : 0.0};
      answers.set(filter.name, answer);
    }
    sample.details = {{"completion", text},
                      {"score", reply.reward},
                      {"correct", right(reply)},
                      {"finish_reason", reply.completion.finish_reason}};
    if (!filters_.empty()) sample.details.emplace_back("filtered", answers);
  }

  // What each reply votes for.
  static std::vector<std::optional<std::string>> answers_of(const Group& group, const Reward& grader) {
    std::vector<std::optional<std::string>> out;
    for (const Sample& reply : group.samples)
      out.push_back(reply.scored ? grader.read_answer(group.task, reply.completion) : std::nullopt);
    return out;
  }

  void add_sampled(EvalSample& sample, const Group& group, const Reward& grader, const std::string& mean) const {
    const auto n = static_cast<int64_t>(group.samples.size());
    const bool votes = grader.reads_answers(group.task);
    const std::vector<std::optional<std::string>> answers =
        votes ? answers_of(group, grader) : std::vector<std::optional<std::string>>(group.samples.size());
    const auto numbers = number_answers(
        answers, [&](const std::string& a, const std::string& b) { return grader.same_answers(group.task, a, b); });
    std::vector<bool> correct;
    JsonArray replies;
    int64_t num_right = 0;
    for (size_t i = 0; i < group.samples.size(); ++i) {
      const Sample& reply = group.samples[i];
      correct.push_back(right(reply));
      num_right += correct.back();
      replies.push_back(JsonObject{{"completion", reply.completion.text},
                                   {"score", reply.reward},
                                   {"correct", static_cast<bool>(correct.back())},
                                   {"answer", answers[i] ? Json(*answers[i]) : Json(nullptr)},
                                   {"finish_reason", reply.completion.finish_reason}});
    }
    for (const int64_t k : powers_up_to(n)) {
      sample.metrics["pass@" + std::to_string(k)] = {pass_at_k(n, num_right, k)};
      if (!votes) continue;
      const std::optional<size_t> winner = majority(numbers, static_cast<size_t>(k));
      sample.metrics["maj@" + std::to_string(k)] = {winner && correct[*winner] ? 1.0 : 0.0};
    }
    sample.metrics[mean] = {static_cast<double>(num_right) / static_cast<double>(n)};
    sample.details.emplace_back("sampled", std::move(replies));
  }

  PromptSource source_;
  std::string answer_ = "{answer}";
  RewardSpec reward_;
  double threshold_ = 1;
  std::vector<AnswerFilter> filters_;
  ExactMatch match_;
  SamplingParams sampling_;
};

[[maybe_unused]] const bool added =
    eval_kinds().add("generate", [] { return std::unique_ptr<EvalTask>(new Generate); });

}  // namespace
}  // namespace hone
