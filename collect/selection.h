#pragma once
// Selection: which completions of a collected row become SFT rows, preference pairs and a task with its pass rate.
// Functions of the row and the settings alone.
#include <cstdint>
#include <optional>
#include <vector>

#include "collect/config.h"
#include "collect/row.h"

namespace hone {

// Numbers of completions. scored = passed + not passed; failures are no scores.
struct RowCounts {
  int64_t completions = 0, scored = 0, passed = 0, skipped = 0, truncated = 0, duplicates = 0, tokens = 0;
  int64_t failed_completions = 0, failed_rewards = 0, failed_environments = 0;
  double reward = 0;  // sum of the scores
  int64_t failed() const { return failed_completions + failed_rewards + failed_environments; }
  void add(const RowCounts& other);
};
RowCounts count_row(const CollectedRow& row, const SelectionConfig& selection);

// SFT rows: {"prompt", "completion"} as texts or lists of messages, or {"messages"}; then the conversation's tools,
// documents and chat_template_kwargs, "id", "completion_index", and "reward" if there is one. `data_row`: for
// keep_columns. scored: without rewards every completion passes.
std::vector<Json> sft_rows(const CollectedRow& row, const Json& data_row, const SelectionConfig& selection,
                           bool scored);

// At most pairs_per_prompt rows {"prompt", "chosen", "rejected", "chosen_reward", "rejected_reward", "answer", "id"},
// best pair first. Completions of equal reward keep their order. Completions that failed, have no score or were cut off
// (training would add an end that was not sampled) are left out. In a conversation chosen and rejected are lists of
// messages (TRL's format), else texts.
std::vector<Json> pairs_of(const CollectedRow& row, const Json& data_row, const SelectionConfig& selection);

// The data row with the columns pass_rate, num_passed, num_scored and num_failed. Nothing if no completion has a score,
// or if the pass rate is outside of the limits.
std::optional<Json> task_row(const CollectedRow& row, const Json& data_row, const SelectionConfig& selection);

}  // namespace hone
