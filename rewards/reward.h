#pragma once
// A reward scores completions of one task. A reward is pure: the same task and text get the same score, in any order
// and on any thread. It takes bounded time for any text (empty, huge, hostile, invalid UTF-8). Each reward has one file
// and registers with one line:
//   [[maybe_unused]] const bool added = rewards().add("exact", [] { return std::unique_ptr<Reward>(new Exact); });
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/registry.h"
#include "core/config/choice.h"
#include "core/config/config.h"
#include "core/config/fields.h"
#include "data/sample.h"

namespace hone {

struct RewardScore {
  double score = 0;
  std::string note = {};  // a few words for people: "no answer found", "expected 12, got 13"
  bool skipped = false;   // the reward does not apply; a composite leaves it out
  bool failed = false;    // no score (plug-in error); `note` says why. Never used for a wrong completion
  Metrics parts = {};     // scores of the parts by name; empty if there are no parts
  std::vector<std::string> failed_parts = {};  // names of the parts that failed
};

// The completions of one task and the scores to write, one per completion.
struct GroupScores {
  const Task& task;
  std::span<const Completion> completions;
  std::span<RewardScore> scores;
};

// What is known of a reward's use before a run computes anything.
struct RewardTrial {
  const Task* task = nullptr;  // the first one; null: unknown
  // True for a path that the run writes before the reward is used; null: there is none.
  std::function<bool(const std::filesystem::path&)> is_made_earlier = {};
};

// The run that a reward scores for.
struct RewardRun {
  std::filesystem::path folder;  // of the run
  int64_t rank = 0;              // each rank has a reward object of its own
};

class Reward;
using RewardFactory = std::unique_ptr<Reward> (*)();
Registry<RewardFactory>& rewards();

class Reward {
 public:
  virtual ~Reward() = default;
  static Registry<RewardFactory>& registry() { return rewards(); }
  // Options, as recipe keys.
  virtual void fields(Fields&) {}
  // Called once after fields are read; throws an Error if they make no sense together.
  virtual void prepare() {}
  // Returns why the reward cannot run on this machine (no interpreter, a sandbox guard is missing), or "". Reading a
  // recipe or a task does not call it; a command that is about to score does.
  virtual std::string unavailable_reason() const { return ""; }
  // Throws an Error if the reward cannot score the first task. A run calls it before it computes anything. The default
  // scores an empty completion. A reward with costs or side effects (a plug-in, a model) tries less.
  virtual void check(const RewardTrial& trial) const;
  // Called once before the first score of a run. A reward that must not ask twice keeps its answers in the run's
  // folder.
  virtual void begin(const RewardRun&) const {}
  virtual RewardScore score(const Task& task, const Completion& completion) const = 0;
  // Writes the scores of a group, in order. They equal those of score() unless the reward compares completions.
  virtual void score_group(const Task& task, std::span<const Completion> completions,
                           std::span<RewardScore> scores) const;
  // Writes the scores of several groups. The default calls score_group for each of them in parallel.
  virtual void score_groups(std::span<const GroupScores> groups) const;
  // Answers serve majority votes over several completions of a task (maj@k). Returns true if score() reads an answer
  // out of a completion and compares it with the reference. Returns false if completions have no such answer (a
  // program, a style, one of many solutions) or if the reward does not expose it (a plug-in).
  virtual bool reads_answers(const Task&) const { return false; }
  // Returns the answer that score() compares, or nothing if the completion has none.
  virtual std::optional<std::string> read_answer(const Task&, const Completion&) const { return std::nullopt; }
  // Returns true if two answers are equal by the rule that score() uses.
  virtual bool same_answers(const Task&, const std::string& a, const std::string& b) const { return a == b; }
  // Returns false if the reward uses the device. The engine's thread then calls score_groups between engine steps.
  // Otherwise another thread scores each group as soon as its completions are finished.
  virtual bool on_host() const { return true; }
  // Returns the weights of those RewardScore::parts whose weighted sum is the score, by name. Empty: the reward has no
  // parts.
  virtual Metrics part_weights() const { return {}; }
  // Returns how many groups to score at once; 0 = the number of threads. A reward that waits for other processes
  // returns more.
  virtual int64_t concurrency() const { return 0; }
};

// A reward in a recipe: kind and the reward's own keys in one table ({kind = "format", pattern = "..."}).
struct RewardSpec {
  Choice<Reward> reward;
  std::string name;  // in metrics and messages; empty = the kind
  double weight = 1;
  const std::string& label() const { return name.empty() ? reward.kind() : name; }
  // optional: an empty kind means no reward, instead of an error.
  void fields(Fields& f, bool optional = false);
  // Throws an Error if the reward cannot run on this machine.
  void check() const;
  // The same, or if it cannot score the first task.
  void check(const RewardTrial& trial) const;
};

// Makes a reward from a command-line argument: a name ("math"), an inline table ("{kind = 'format', ...}") or a TOML
// file. Throws an Error if the reward cannot run on this machine.
std::shared_ptr<const Reward> make_reward(std::string_view spec);

}  // namespace hone
