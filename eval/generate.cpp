// Evaluation kind "generate": generates completions and scores them with the task's reward, with answer filters
// (exact_match,NAME), or both. The accuracy is the reward's if there is one, else the first filter's. Sampled
// completions give pass@k, maj@k and mean@k.
#include <algorithm>

#include "core/base/log.h"
#include "data/row_template.h"
#include "eval/extraction.h"
#include "eval/prompts.h"
#include "eval/task.h"
#include "posttrain/rl/collector.h"

namespace hone {
namespace {

// The first filter as a reward, for a task without a reward.
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

// 1, 2, 4, ... below n, and n.
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
    f("reward", reward_, "reward that scores the completions; empty = filters only");
    f("threshold", threshold_, "a completion with at least this score is right");
    f("filters", filters_, "filters that extract the answer of a completion for exact_match");
    match_.fields(f);
    f("sampling", sampling_, "sampling of completions; greedy ones use its max_tokens and stop strings");
    f.require("reward", reward_.reward || !filters_.empty() || !f.reading(),
              "the task needs a reward ([reward] kind = \"...\") or filters: set one of them");
  }
  void check() const override { reward_.check(); }
  void check_rows(const EvalOptions& options) const override {
    const std::vector<EvalExample> docs = load_rows(of_first_row(options));
    Task task = PromptRenderer(source_, options).task(docs.front());
    if (!answer_.empty()) task.answer = fill_template(answer_, docs.front().row, docs.front().where);
    if (reward_.reward) reward_.check({.task = &task});
  }
  void each_row(const std::function<void(const Json&, const std::string&)>& row) const override {
    read_rows(source_.rows, row);
  }
  int64_t num_fewshot(const EvalOptions& options) const override { return source_.shots(options); }

  EvalRun run(EvalTarget& target, const EvalOptions& options) const override {
    const std::vector<EvalExample> docs = load_rows(options);
    const PromptRenderer renderer(source_, options);
    EvalRun out;
    std::vector<Task> tasks = fitting_tasks(target, docs, renderer, out);
    CollectorConfig greedy{
        .num_generations = 1, .sampling = sampling_, .format = renderer.format(), .reward = reward_spec()};
    greedy.sampling.temperature = 0;
    for (size_t i = 0; i < docs.size(); ++i) {
      if (!answer_.empty()) tasks[i].answer = fill_template(answer_, docs[i].row, docs[i].where);
      EvalSample& sample = out.samples.emplace_back(make_sample(docs[i]));
      sample.prompt = PromptRenderer::shown(tasks[i]);
      sample.target = tasks[i].answer;
    }
    generate(target, docs, tasks, greedy, "greedy", out,
             [&](EvalSample& sample, const Group& group) { add_greedy(sample, group); });
    if (options.samples > 0) {
      CollectorConfig sampled = greedy;
      sampled.num_generations = options.samples;
      sampled.sampling.temperature = options.temperature;
      sampled.sampling.seed = options.seed;
      out.sampled = "mean@" + std::to_string(options.samples);
      generate(target, docs, tasks, sampled, "sampled", out, [&](EvalSample& sample, const Group& group) {
        add_sampled(sample, group, *sampled.reward.reward, out.sampled);
      });
    }
    out.primary = reward_.reward ? "accuracy" : "exact_match," + filters_.front().name;
    return out;
  }

 private:
  std::vector<EvalExample> load_rows(const EvalOptions& options) const {
    return source_.load(
        options, [&](const Json& row, const std::string& where) { return " " + fill_template(answer_, row, where); });
  }

  RewardSpec reward_spec() const {
    if (reward_.reward) return reward_;
    RewardSpec out;
    out.reward.set("exact_match", std::make_shared<FilterReward>(filters_.front(), match_));
    return out;
  }

  // Drops the first few-shot examples of prompts that would leave too few positions for max_tokens.
  std::vector<Task> fitting_tasks(const EvalTarget& target, const std::vector<EvalExample>& docs,
                                  const PromptRenderer& renderer, EvalRun& out) const {
    PromptEncoder encoder(renderer.format(), target.tokenizer);
    const int64_t max_prompt = std::max<int64_t>(1, target.model.shape().max_positions - sampling_.max_tokens);
    std::vector<Task> tasks;
    int64_t cut = 0;
    for (const EvalExample& doc : docs) {
      size_t skipped = 0;
      tasks.push_back(renderer.task(doc));
      while (skipped < doc.shots.size() && static_cast<int64_t>(encoder.prompt(tasks.back()).size()) > max_prompt)
        tasks.back() = renderer.task(doc, ++skipped);
      cut += skipped > 0;
    }
    if (cut > 0) {
      out.facts["cut"] = static_cast<double>(cut);
      log::warning("eval: ", cut, " of ", docs.size(), " prompts have fewer examples, to fit the model's ",
                   target.model.shape().max_positions, " positions");
    }
    return tasks;
  }

  // Generates completions of all tasks and calls take(sample, group) for each task. Request ids are the rows' hashes,
  // so that the order of rows does not matter.
  static void generate(EvalTarget& target, const std::vector<EvalExample>& docs, const std::vector<Task>& tasks,
                       const CollectorConfig& config, const std::string& mode, EvalRun& out,
                       const std::function<void(EvalSample&, const Group&)>& take) {
    LocalBackend backend(target.context, target.model, target.tokenizer, target.engine);
    Collector collector(backend, target.tokenizer, config);
    std::vector<uint64_t> ids;
    for (const EvalExample& doc : docs) ids.push_back(doc.hash);
    double length = 0, cut = 0, unscored = 0, count = 0;
    collect_all(collector, tasks, ids, "eval " + mode, [&](size_t i, const Group& group) {
      take(out.samples[i], group);
      for (const Sample& completion : group.samples) {
        length += static_cast<double>(completion.completion.ids.size());
        cut += completion.completion.finish_reason == "length";
        unscored += !completion.scored;
        ++count;
      }
    });
    out.num_tokens += static_cast<int64_t>(length);
    out.facts[mode + "/mean_length"] = length / count;
    out.facts[mode + "/clipped_ratio"] = cut / count;
    if (collector.failed_completions() > 0)
      out.facts[mode + "/failed"] = static_cast<double>(collector.failed_completions());
    if (unscored > 0) {
      out.facts[mode + "/unjudged"] = unscored;
      log::warning("eval: ", static_cast<int64_t>(unscored), " of ", static_cast<int64_t>(count),
                   " completions could not be sampled or scored and count as wrong");
    }
  }

  bool right(const Sample& completion) const { return completion.scored && completion.reward >= threshold_; }

  void add_greedy(EvalSample& sample, const Group& group) const {
    const Sample& completion = group.samples.front();
    const std::string& text = completion.completion.text;
    if (reward_.reward) sample.metrics["accuracy"] = {right(completion) ? 1.0 : 0.0};
    Json answers = JsonObject{};
    for (const AnswerFilter& filter : filters_) {
      const std::string answer = filter.extract(text);
      sample.metrics["exact_match," + filter.name] = {match_(answer, sample.target) ? 1.0 : 0.0};
      answers.set(filter.name, answer);
    }
    sample.details = {{"completion", text},
                      {"score", completion.reward},
                      {"correct", right(completion)},
                      {"finish_reason", completion.completion.finish_reason}};
    if (!filters_.empty()) sample.details.emplace_back("filtered", answers);
  }

  // The answer that each completion votes for.
  static std::vector<std::optional<std::string>> answers_of(const Group& group, const Reward& grader) {
    std::vector<std::optional<std::string>> out;
    for (const Sample& completion : group.samples)
      out.push_back(completion.scored ? grader.read_answer(group.task, completion.completion) : std::nullopt);
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
    JsonArray completions;
    int64_t num_right = 0;
    for (size_t i = 0; i < group.samples.size(); ++i) {
      const Sample& completion = group.samples[i];
      correct.push_back(right(completion));
      num_right += correct.back();
      completions.push_back(JsonObject{{"completion", completion.completion.text},
                                       {"score", completion.reward},
                                       {"correct", static_cast<bool>(correct.back())},
                                       {"answer", answers[i] ? Json(*answers[i]) : Json(nullptr)},
                                       {"finish_reason", completion.completion.finish_reason}});
    }
    for (const int64_t k : powers_up_to(n)) {
      sample.metrics["pass@" + std::to_string(k)] = {pass_at_k(n, num_right, k)};
      if (!votes) continue;
      const std::optional<size_t> winner = majority(numbers, static_cast<size_t>(k));
      sample.metrics["maj@" + std::to_string(k)] = {winner && correct[*winner] ? 1.0 : 0.0};
    }
    sample.metrics[mean] = {static_cast<double>(num_right) / static_cast<double>(n)};
    sample.details.emplace_back("sampled", std::move(completions));
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
