#pragma once
// A reward judges completions of one task. Pure: the same task and text give the same score, in any order, on any thread, for any text
// (empty, huge, hostile, invalid UTF-8) in bounded time. One file a reward; it joins with one line:
//   [[maybe_unused]] const bool added = rewards().add("exact", [] { return std::unique_ptr<Reward>(new Exact); });
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/config.h"
#include "core/fields.h"
#include "core/registry.h"
#include "core/sample.h"

namespace hone {

struct Score {
  double score = 0;
  std::string note = {};  // a few words for people: "no answer found", "expected 12, got 13"
  bool skipped = false;   // the reward has nothing to say here (a composite leaves it out)
  Metrics parts = {};     // scores of the parts, by name; empty = just this one
};

class Reward {
 public:
  virtual ~Reward() = default;
  // Options, as recipe keys.
  virtual void fields(Fields&) {}
  // Called once after fields are read; throws an Error if they make no sense together.
  virtual void prepare() {}
  virtual Score score(const Task& task, const Completion& completion) const = 0;
  // Scores of a group, in order; the same as one by one unless the reward compares them.
  virtual void score_group(const Task& task, std::span<const Completion> completions, std::span<Score> scores) const;
};

using RewardFactory = std::unique_ptr<Reward> (*)();
Registry<RewardFactory>& rewards();

// How a recipe names a reward: kind and the reward's own keys in one table ({kind = "format", pattern = "..."}).
struct RewardSpec {
  std::string kind;
  double weight = 1;
  std::shared_ptr<Reward> reward;  // made while fields() reads
  void fields(Fields& f);
};

// From a command line: a name ("math"), an inline table ("{kind = 'format', ...}"), or a TOML file.
std::shared_ptr<const Reward> make_reward(std::string_view spec);

}  // namespace hone
