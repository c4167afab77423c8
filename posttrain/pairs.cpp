#include "posttrain/pairs.h"

#include <algorithm>
#include <optional>

#include "data/first_rows.h"
#include "posttrain/losses/group_pairs.h"
#include "posttrain/rl/collector.h"

namespace hone {

void PairSource::fields(Fields& f) {
  tasks.fields(f);
  actor.fields(f);
  f("rollout", rollout, "the engine that samples completions");
  f("margin", margin, "the rewards of a pair differ by more than this; 0 = by any amount");
  f("pairs_per_prompt", pairs_per_prompt,
    "maximum number of pairs of a prompt: the best completion with the worst, the second best with the second worst, "
    "...");
  f.require("margin", margin >= 0, "margin must be 0 or more");
  f.require("pairs_per_prompt", pairs_per_prompt > 0, "pairs_per_prompt must be positive");
  f.require("reward", actor.reward.reward || !f.reading(), "pairs need a reward ([reward] kind = \"...\")");
}

// One side of a pair: the completion's text; for a task with messages a list of one message.
static Json side_of(const Task& task, const Sample& sample) {
  if (task.messages.empty()) return sample.completion.text;
  return messages_json(std::vector<Message>{{"assistant", sample.completion.text, {}}});
}

void check_pairs(const PairSource& source) {
  std::optional<Task> first;
  each_first_row(source.tasks.rows, [&](const RowSource& rows) {
    TaskSource one = source.tasks;
    one.rows = rows;
    const std::vector<Task> tasks = load_tasks(one);
    if (!first) first = tasks.front();
  });
  source.actor.reward.check({.task = first ? &*first : nullptr});
}

std::vector<Json> pairs_of(const Group& group, double margin, int64_t most) {
  std::vector<const Sample*> finished;
  for (const Sample& sample : group.samples)
    if (sample.completion.finish_reason == "stop") finished.push_back(&sample);
  std::vector<Json> out;
  for (const RankedPair& pair : rank_pairs(finished, {.margin = margin, .pairs_per_prompt = most})) {
    const Task& task = group.task;
    out.push_back(JsonObject{{"prompt", task.messages.empty() ? Json(task.prompt) : messages_json(task.messages)},
                             {"chosen", side_of(task, *pair.chosen)},
                             {"rejected", side_of(task, *pair.rejected)},
                             {"chosen_reward", pair.chosen->reward},
                             {"rejected_reward", pair.rejected->reward},
                             {"answer", task.answer}});
  }
  return out;
}

PairReport sample_pairs(Context& context, Model& model, const Tokenizer& tokenizer, const PairSource& source,
                        const std::function<void(const Json& row)>& row) {
  const std::vector<Task> tasks = load_tasks(source.tasks);
  LocalBackend sampler(context, model, tokenizer, source.rollout);
  Collector actor(sampler, tokenizer, source.actor);
  PairReport out;
  collect_all(actor, tasks, {}, "pairs", [&](size_t, const Group& group) {
    ++out.prompts;
    for (const Sample& sample : group.samples) {
      ++out.replies;
      out.judged += sample.scored;
      out.reward += sample.scored ? sample.reward : 0;
    }
    for (const Json& pair : pairs_of(group, source.margin, source.pairs_per_prompt)) {
      ++out.pairs;
      row(pair);
    }
  });
  out.reward /= static_cast<double>(std::max<int64_t>(out.judged, 1));
  return out;
}

}  // namespace hone
