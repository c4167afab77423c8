#include "posttrain/rl_sources.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "data/first_rows.h"
#include "posttrain/rl/trajectory_encoder.h"

namespace hone {

void RlSource::source_fields(Fields& f) {
  TaskSource::fields(f);
  format.fields(f);
  // Read into a reward of its own, so that an absent kind leaves the stage's.
  f.table(
      "reward",
      [&](Fields& g) {
        if (g.reading()) reward = {};
        reward.fields(g, true);
      },
      "scores the completions; absent = the stage's reward");
}

namespace {

std::vector<Task> load_source(const DataSource<RlSource>& source) {
  std::vector<Task> out = load_tasks(source.settings);
  if (source.name.empty()) return out;
  for (Task& task : out) {
    task.source = source.name;
    task.id = concat(source.name, ":", task.id);
  }
  return out;
}

// Reads and encodes the first task of each file, and reads the others. Returns the first task that has no problem.
std::optional<Task> first_task(const Problems& problems, const Tokenizer* tokenizer,
                               const DataSource<RlSource>& source) {
  std::optional<PromptEncoder> encoder;
  if (tokenizer)
    problems.attempt(source.settings.format.key(), [&] { encoder.emplace(source.settings.format, *tokenizer); });
  std::optional<Task> first;
  const RowSource& all_rows = source.settings.rows;
  const char* key = all_rows.files.empty() ? "generator" : "files";
  const size_t before = problems.size();
  each_first_row(all_rows, [&](const RowSource& rows) {
    problems.attempt(key, [&] {
      DataSource<RlSource> one = source;
      one.settings.rows = rows;
      Task task = load_source(one).front();
      if (encoder) encoder->prompt(task);
      if (!first) first = std::move(task);
    });
  });
  if (problems.size() == before) problems.attempt(key, [&] { check_all_rows(all_rows); });
  return first;
}

// An environment's rewards suffice, but a source without a reward cannot stand beside one with a reward.
void check_no_rewards(RlSources sources) {
  for (const DataSource<RlSource>& source : sources)
    HONE_CHECK(!source.settings.reward.reward, "rl: source ", source.name,
               " has a reward and another source has none: give all of them a reward, or none");
}

void check_source(const StageCheck& check, const DataSource<RlSource>& source, RlSources all,
                  const EnvironmentConfig& environment) {
  const Problems problems =
      check.problems.below(source.key, source.name.empty() ? "" : concat("source ", source.name, ": "));
  const std::optional<Task> first = first_task(problems, check.tokenizer, source);
  check.problems.attempt("environment", [&] {
    environment.check(first ? &*first : nullptr);
    if (environment && check.tokenizer)
      TrajectoryEncoder(source.settings.format, *check.tokenizer, environment.tool_parser)
          .check(first ? &*first : nullptr);
  });
  problems.attempt("reward", [&] {
    const RewardSpec& reward = source.settings.reward;
    if (environment && !reward.reward) return check_no_rewards(all);
    HONE_CHECK(reward.reward,
               "rl: the stage needs a reward ([stage.reward] kind = \"...\"; known: ", join(rewards().names()), ")");
    reward.check({.task = first ? &*first : nullptr, .is_made_earlier = check.is_made_earlier});
  });
}

}  // namespace

std::vector<Task> load_rl_tasks(RlSources sources, std::vector<MixturePart>* parts) {
  std::vector<Task> out;
  for (const DataSource<RlSource>& source : sources) {
    std::vector<Task> tasks = load_source(source);
    if (parts) parts->push_back({.name = source.name, .count = std::ssize(tasks), .weight = source.weight});
    std::ranges::move(tasks, std::back_inserter(out));
  }
  return out;
}

int64_t longest_prompt(RlSources sources, const Tokenizer& tokenizer) {
  int64_t out = 0;
  for (const DataSource<RlSource>& source : sources) {
    PromptEncoder encoder(source.settings.format, tokenizer);
    for (const Task& task : load_source(source)) out = std::max(out, std::ssize(encoder.prompt(task)));
  }
  return out;
}

std::vector<ShownSample> show_prompts(RlSources sources, const ShowRequest& request) {
  std::vector<ShownSample> out;
  for (DataSource<RlSource> source : sources) {
    RowSource& rows = source.settings.rows;
    if (rows.limit == 0 || rows.limit > request.rows) rows.limit = request.rows;
    PromptEncoder encoder(source.settings.format, request.tokenizer);
    for (const Task& task : load_source(source)) {
      ShownSample shown{.where = task.id, .part = "prompt", .sample = {}, .roles = encoder.prompt_roles(task)};
      shown.sample.tokens = encoder.prompt(task);
      shown.sample.columns.assign(columns::mask, shown.sample.tokens.size(), 0);
      shown.full_length = std::ssize(shown.sample.tokens);
      if (!task.answer.empty()) shown.note = "answer: " + task.answer;
      out.push_back(std::move(shown));
    }
  }
  return out;
}

void check_rl_sources(const StageCheck& check, RlSources sources, const EnvironmentConfig& environment) {
  for (const DataSource<RlSource>& source : sources) check_source(check, source, sources, environment);
}

}  // namespace hone
