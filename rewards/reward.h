#pragma once
// A reward judges completions of one task. Pure: the same task and text give the same score, in any order, on any
// thread, for any text (empty, huge, hostile, invalid UTF-8) in bounded time. One file a reward; it joins with one
// line:
//   [[maybe_unused]] const bool added = rewards().add("exact", [] { return std::unique_ptr<Reward>(new Exact); });
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
  bool skipped = false;   // the reward has nothing to say here (a composite leaves it out)
  bool failed = false;    // it could not be found out, and note says why: a plug-in that broke, never a bad reply
  Metrics parts = {};     // scores of the parts, by name; empty = just this one
  std::vector<std::string> failed_parts = {};  // by name; empty = just this one, if it failed
};

// The completions of one task and where their scores go.
struct GroupScores {
  const Task& task;
  std::span<const Completion> completions;
  std::span<RewardScore> scores;
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
  // Why it cannot judge on this machine (there is no interpreter, a guard of the sandbox is missing); "" if it can.
  // Reading a recipe or a task does not ask; what is about to judge does.
  virtual std::string unavailable_reason() const { return ""; }
  virtual RewardScore score(const Task& task, const Completion& completion) const = 0;
  // Scores of a group, in order; the same as one by one unless the reward compares them.
  virtual void score_group(const Task& task, std::span<const Completion> completions,
                           std::span<RewardScore> scores) const;
  // Scores of many groups; the same as group by group, which is what it does (several at once) unless overridden.
  virtual void score_groups(std::span<const GroupScores> groups) const;
  // Answers, for votes over several completions of a task (maj@k). reads_answers: score() reads an answer to this task
  // out of a completion and compares it with the reference. False if completions have no such answer (a program, a
  // style, one of many solutions), or if the reward does not show it (a plug-in).
  virtual bool reads_answers(const Task&) const { return false; }
  // The answer that score() judges; none if it finds none.
  virtual std::optional<std::string> read_answer(const Task&, const Completion&) const { return std::nullopt; }
  // Whether two such answers are the same one, as score() compares an answer with the reference.
  virtual bool same_answers(const Task&, const std::string& a, const std::string& b) const { return a == b; }
  // False for a reward that uses the device: groups are then judged by score_groups on the engine's own thread, once it
  // is at rest. Otherwise a group is judged on another thread, as soon as its replies are finished.
  virtual bool on_host() const { return true; }
  // Groups worth judging at once; 0 = as many as there are threads. A reward that waits for others asks for more.
  virtual int64_t concurrency() const { return 0; }
};

// A reward in a recipe: kind and the reward's own keys in one table ({kind = "format", pattern = "..."}).
struct RewardSpec {
  Choice<Reward> reward;
  std::string name;  // in metrics and messages; empty = the kind
  double weight = 1;
  const std::string& label() const { return name.empty() ? reward.kind() : name; }
  void fields(Fields& f);
  // An Error if there is a reward and it refuses to judge on this machine.
  void check() const;
};

// From a command line: a name ("math"), an inline table ("{kind = 'format', ...}"), or a TOML file. An Error if it
// refuses to judge here.
std::shared_ptr<const Reward> make_reward(std::string_view spec);

}  // namespace hone
