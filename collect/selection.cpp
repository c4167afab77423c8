#include "collect/selection.h"

#include <algorithm>
#include <set>

namespace hone {
namespace {

// What follows the prompt, as a row has it: a text after a text, else messages.
Json side_of(const CollectedRow& row, const CollectedCompletion& completion) {
  if (!completion.messages.empty()) return messages_json(completion.messages);
  if (row.prompt.is_string()) return completion.text;
  return messages_json(std::vector<Message>{{"assistant", completion.text, {}}});
}

bool passes(const CollectedCompletion& completion, const SelectionConfig& selection) {
  return completion.has_score() && completion.reward && *completion.reward >= selection.threshold;
}

struct Candidate {
  size_t index = 0;
  Json side;
  double reward = 0;
};

// Completions with a score, in their order; identical ones once if the settings say so.
std::vector<Candidate> candidates_of(const CollectedRow& row, const SelectionConfig& selection, bool truncated) {
  std::vector<Candidate> out;
  std::set<std::string> seen;
  for (size_t i = 0; i < row.completions.size(); ++i) {
    const CollectedCompletion& completion = row.completions[i];
    if (!completion.has_score() || (completion.is_truncated() && !truncated)) continue;
    Candidate one{.index = i, .side = side_of(row, completion), .reward = completion.reward.value_or(0)};
    if (selection.deduplicate && !seen.insert(one.side.dump()).second) continue;
    out.push_back(std::move(one));
  }
  return out;
}

void best_first(std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) { return a.reward > b.reward; });
}

void add_variables(Json& out, const CollectedRow& row) {
  if (row.variables.is_object())
    for (const auto& [name, value] : row.variables.as_object()) out.set(name, value);
}

void add_columns(Json& out, const Json& data_row, const SelectionConfig& selection) {
  for (const std::string& name : selection.keep_columns)
    if (const Json* value = data_row.find(name)) out.set(name, *value);
}

// The prompt and the completion as one conversation. A text is a message of the user, or of the assistant.
Json conversation_of(const CollectedRow& row, const Json& side) {
  JsonArray out;
  if (row.prompt.is_string())
    out.push_back(JsonObject{{"role", "user"}, {"content", row.prompt}});
  else
    out = row.prompt.as_array("prompt");
  if (side.is_string())
    out.push_back(JsonObject{{"role", "assistant"}, {"content", side}});
  else
    for (const Json& message : side.as_array("completion")) out.push_back(message);
  return out;
}

}  // namespace

void RowCounts::add(const RowCounts& other) {
  completions += other.completions;
  scored += other.scored;
  passed += other.passed;
  skipped += other.skipped;
  truncated += other.truncated;
  duplicates += other.duplicates;
  tokens += other.tokens;
  failed_completions += other.failed_completions;
  failed_rewards += other.failed_rewards;
  failed_environments += other.failed_environments;
  reward += other.reward;
}

RowCounts count_row(const CollectedRow& row, const SelectionConfig& selection) {
  RowCounts out;
  std::set<std::string> seen;
  for (const CollectedCompletion& completion : row.completions) {
    ++out.completions;
    out.tokens += completion.num_tokens;
    out.failed_completions += completion.without_score == "completion";
    out.failed_rewards += completion.without_score == "reward";
    out.failed_environments += completion.without_score == "environment";
    out.skipped += completion.without_score == "skipped";
    if (completion.is_missing()) continue;
    out.truncated += completion.is_truncated();
    out.duplicates += !seen.insert(side_of(row, completion).dump()).second;
    if (!completion.has_score()) continue;
    ++out.scored;
    out.passed += passes(completion, selection);
    out.reward += completion.reward.value_or(0);
  }
  return out;
}

std::vector<Json> sft_rows(const CollectedRow& row, const Json& data_row, const SelectionConfig& selection,
                           bool scored) {
  std::vector<Candidate> chosen = candidates_of(row, selection, selection.accept_truncated);
  const bool best = selection.sft == "best_of_n" && scored;
  if (scored && !best) std::erase_if(chosen, [&](const Candidate& one) { return one.reward < selection.threshold; });
  best_first(chosen);
  const int64_t most = best && selection.sft_per_prompt == 0 ? 1 : selection.sft_per_prompt;
  if (most > 0 && std::ssize(chosen) > most) chosen.resize(static_cast<size_t>(most));
  std::vector<Json> out;
  for (const Candidate& one : chosen) {
    Json& sample = out.emplace_back(JsonObject{});
    if (selection.sft_format == "messages") {
      sample.set("messages", conversation_of(row, one.side));
    } else {
      sample.set("prompt", row.prompt);
      sample.set("completion", one.side);
    }
    add_variables(sample, row);
    sample.set("id", row.id);
    sample.set("completion_index", one.index);
    if (scored) sample.set("reward", one.reward);
    add_columns(sample, data_row, selection);
  }
  return out;
}

std::vector<Json> pairs_of(const CollectedRow& row, const Json& data_row, const SelectionConfig& selection) {
  std::vector<Candidate> ranked = candidates_of(row, selection, false);
  best_first(ranked);
  std::vector<Json> out;
  for (size_t i = 0; 2 * i + 1 < ranked.size() && std::ssize(out) < selection.pairs_per_prompt; ++i) {
    const Candidate &chosen = ranked[i], &rejected = ranked[ranked.size() - 1 - i];
    if (!(chosen.reward - rejected.reward > selection.margin)) break;
    Json& pair = out.emplace_back(JsonObject{{"prompt", row.prompt},
                                             {"chosen", chosen.side},
                                             {"rejected", rejected.side},
                                             {"chosen_reward", chosen.reward},
                                             {"rejected_reward", rejected.reward},
                                             {"answer", row.answer}});
    add_variables(pair, row);
    pair.set("id", row.id);
    add_columns(pair, data_row, selection);
  }
  return out;
}

std::optional<Json> task_row(const CollectedRow& row, const Json& data_row, const SelectionConfig& selection) {
  const RowCounts counts = count_row(row, selection);
  if (counts.scored == 0) return std::nullopt;
  const double rate = static_cast<double>(counts.passed) / static_cast<double>(counts.scored);
  if (rate < selection.min_pass_rate || rate > selection.max_pass_rate) return std::nullopt;
  Json out = data_row;
  out.set("pass_rate", rate);
  out.set("num_passed", counts.passed);
  out.set("num_scored", counts.scored);
  out.set("num_failed", counts.failed());
  return out;
}

}  // namespace hone
