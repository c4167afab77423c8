#include "collect/config.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "data/first_rows.h"

namespace hone {

void CollectEngine::fields(Fields& f) {
  EngineConfig::fields(f);
  pool.fields(f);
}

void SelectionConfig::fields(Fields& f) {
  f("threshold", threshold, "a completion with at least this reward passes: for SFT rows and pass rates");
  f("sft", sft,
    "SFT rows: accept (the completions that pass) | best_of_n (the best completions of a prompt, whatever their "
    "reward)");
  f("sft_per_prompt", sft_per_prompt,
    "maximum number of SFT rows of a prompt, those of the highest rewards; 0 = all that pass, or one with best_of_n");
  f("accept_truncated", accept_truncated,
    "take completions that reached a limit (max_tokens, max_turns) into SFT rows; they have no end that was sampled");
  f("deduplicate", deduplicate,
    "identical completions of a prompt make one SFT row, and are in one pair; pass rates "
    "count all of them");
  f("sft_format", sft_format,
    "form of SFT rows: prompt_completion (training learns the completion) | messages (a conversation)");
  f("margin", margin, "the rewards of a pair differ by more than this; 0 = by any amount");
  f("pairs_per_prompt", pairs_per_prompt,
    "maximum number of pairs of a prompt: the best completion with the worst, the second best with the second worst, "
    "...");
  f("min_pass_rate", min_pass_rate, "tasks with at least this pass rate are in the task file");
  f("max_pass_rate", max_pass_rate, "tasks with at most this pass rate are in the task file");
  f("keep_columns", keep_columns, "columns of the data row that SFT rows and pairs get, too; empty = none");
  f.require("threshold", std::isfinite(threshold), "threshold must be a finite number");
  f.require("sft", sft == "accept" || sft == "best_of_n", "sft must be accept or best_of_n");
  f.require("sft_per_prompt", sft_per_prompt >= 0, "sft_per_prompt must be 0 or more");
  f.require("sft_format", sft_format == "prompt_completion" || sft_format == "messages",
            "sft_format must be prompt_completion or messages");
  f.require("margin", margin >= 0, "margin must be 0 or more");
  f.require("pairs_per_prompt", pairs_per_prompt > 0, "pairs_per_prompt must be positive");
  f.require("min_pass_rate", min_pass_rate >= 0 && min_pass_rate <= 1, "min_pass_rate must be in [0, 1]");
  f.require("max_pass_rate", max_pass_rate >= min_pass_rate && max_pass_rate <= 1,
            "max_pass_rate must be in [min_pass_rate, 1]");
}

void CollectConfig::fields(Fields& f) {
  tasks.fields(f);
  actor.fields(f);
  f("rollout", rollout, "the engine that samples completions");
  f("endpoint", endpoint, "an OpenAI-compatible server that samples completions, instead of a model; without = none");
  selection.fields(f);
  f("num_shards", num_shards, "number of parts that the rows are divided into; several processes collect one each");
  f("shard_index", shard_index, "which of the parts is collected, from 0");
  f.require("num_shards", num_shards >= 1, "num_shards must be 1 or more");
  f.require("shard_index", shard_index >= 0 && shard_index < num_shards,
            concat("shard_index must be in [0, num_shards - 1] = [0, ", num_shards - 1, "]"));
}

static void check_endpoint(const CollectConfig& config) {
  HONE_CHECK(config.rollout.pool.workers.empty(),
             "collect: rollout.workers and endpoint.base_url both sample completions; remove one of them");
  HONE_CHECK(!config.actor.environment,
             "collect: an environment continues with the token ids of a model, which a server does not give; use a "
             "model folder (--model) or workers instead of endpoint.base_url");
  HONE_CHECK(config.actor.format.settings.chat_template.empty(),
             "collect: a server renders conversations with its own chat template; remove chat_template, and set chat = "
             "\"auto\" for conversations");
}

void check_collect(const CollectConfig& config) {
  HONE_CHECK(std::ranges::find(config.tasks.rows.files, "-") == config.tasks.rows.files.end(),
             "collect: files = [\"-\"]: rows are read again when a run is resumed, and standard input cannot be; write "
             "them to a file");
  if (config.has_endpoint()) check_endpoint(config);
  std::optional<Task> first;
  each_first_row(config.tasks.rows, [&](const RowSource& rows) {
    TaskSource one = config.tasks;
    one.rows = rows;
    const std::vector<Task> tasks = load_tasks(one);
    if (!first) first = tasks.front();
  });
  const Task* task = first ? &*first : nullptr;
  config.actor.reward.check({.task = task});
  config.actor.environment.check(task);
  HONE_CHECK(
      !config.actor.environment || config.actor.format.is_chat() || (task && !task->messages.empty()),
      "collect: rows of several turns are conversations: an environment needs a chat format (chat = \"auto\") or "
      "rows with messages");
}

}  // namespace hone
