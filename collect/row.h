#pragma once
// CollectedRow: the completions of one data row with their scores, as completions.jsonl has them. Everything that
// `hone collect` writes is made of these rows.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "data/prompt.h"
#include "data/sample.h"

namespace hone {

struct CollectedCompletion {
  std::string text;
  // What follows the prompt, if it is more than one text: turns of an environment, or a message with tool calls or
  // reasoning. Else empty.
  std::vector<Message> messages = {};
  std::string finish_reason = {};  // of a failed completion: why it failed
  int64_t num_tokens = 0;          // sampled ones
  // "": it has a score, or there is no reward. completion | reward | environment: that failed. skipped: the reward does
  // not apply.
  std::string without_score = {};
  std::optional<double> reward = {};  // nothing without a reward
  Metrics reward_parts = {};

  bool failed() const { return !without_score.empty() && without_score != "skipped"; }
  // The text itself could not be sampled.
  bool is_missing() const { return without_score == "completion" || without_score == "environment"; }
  bool has_score() const { return without_score.empty(); }
  bool is_truncated() const;
};

struct CollectedRow {
  int64_t index = 0;        // of the data row, from 0, before shards
  std::string id;           // Task::id: file and line
  std::string digest;       // of the task
  Json prompt;              // a text, or a list of messages
  Json variables = {};      // tools, documents, chat_template_kwargs of the conversation; {} = none
  std::string answer = {};  // the reference answer
  std::vector<CollectedCompletion> completions = {};

  bool has_failures() const;
  Json to_json() const;
  // An Error names `where`.
  static CollectedRow parse(const Json& json, const std::string& where);
};

// 16 hexadecimal digits of a SHA-256 of everything in the task.
std::string task_digest(const Task& task);

// The messages of a task's prompt in this format, with the variables of its row; empty: the prompt is plain text.
std::vector<Message> prompt_messages(const Task& task, const PromptFormat& format);

// A row without completions. messages: of the prompt; empty: plain text.
CollectedRow start_row(int64_t index, const Task& task, const std::vector<Message>& messages);
// The completion of a sample. scored: there is a reward.
CollectedCompletion collected_completion(const Sample& sample, bool scored);

}  // namespace hone
