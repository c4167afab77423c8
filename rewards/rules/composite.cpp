// The "composite" reward: the sum of weight * score over the parts that apply. Each part's score is reported by name.
// If every part skips a completion, it is skipped. If a part fails, the completion has failed, since a sum without that
// part would be another reward. A part may apply to some rows only (`when`). A row to which no part applies is an
// error, since no completion of it would ever be scored.
#include <algorithm>

#include "data/row_condition.h"
#include "rewards/reward.h"

namespace hone {

namespace {

struct CompositePart : RewardSpec {
  RowCondition when;

  void fields(Fields& f) {
    RewardSpec::fields(f);
    f("when", when, "rows that the part scores; empty = all");
  }
};

class Composite : public Reward {
 public:
  void fields(Fields& f) override {
    f("parts", parts_, "rewards to add, each with its kind, weight and own keys");
    f("normalize", normalize_, "divide the sum by the weights of the parts that were not skipped");
  }
  void prepare() override {
    HONE_CHECK(!parts_.empty(), "parts is empty; add at least one reward");
    names_.clear();
    for (const CompositePart& part : parts_) {
      std::string name = part.label();
      for (int n = 2; std::find(names_.begin(), names_.end(), name) != names_.end(); ++n)
        name = part.label() + "_" + std::to_string(n);
      names_.push_back(std::move(name));
    }
  }
  std::string unavailable_reason() const override {
    for (size_t p = 0; p < parts_.size(); ++p)
      if (const std::string why = parts_[p].reward->unavailable_reason(); !why.empty()) return names_[p] + ": " + why;
    return "";
  }
  // A part that does not apply to the first task is tried without it.
  void check(const RewardTrial& trial) const override {
    std::vector<std::string> problems;
    bool applies = !trial.task;
    for (size_t p = 0; p < parts_.size(); ++p) {
      RewardTrial part = trial;
      if (part.task && !parts_[p].when.holds(part.task->columns)) part.task = nullptr;
      applies = applies || part.task;
      try {
        parts_[p].reward->check(part);
      } catch (const Error& error) {  // joined with the other parts' errors
        problems.push_back(names_[p] + ": " + error.what());
      }
    }
    if (!applies) problems.push_back("no part applies to " + trial.task->id + "; " + conditions(*trial.task));
    HONE_CHECK(problems.empty(), join(problems, "; "));
  }
  void begin(const RewardRun& run) const override {
    for (const CompositePart& part : parts_) part.reward->begin(run);
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    RewardScore out;
    score_group(task, {&completion, 1}, {&out, 1});
    return out;
  }
  void score_group(const Task& task, std::span<const Completion> completions,
                   std::span<RewardScore> scores) const override {
    const GroupScores group{task, completions, scores};
    score_groups({&group, 1});
  }
  void score_groups(std::span<const GroupScores> groups) const override {
    std::vector<std::vector<std::vector<RewardScore>>> given;  // [part][group][completion]
    std::vector<bool> scored(groups.size());                   // by some part
    for (const CompositePart& part : parts_) {
      std::vector<std::vector<RewardScore>> by_group;
      std::vector<GroupScores> applicable;
      for (const GroupScores& group : groups)
        by_group.emplace_back(group.completions.size(), RewardScore{.skipped = true});
      for (size_t g = 0; g < groups.size(); ++g) {
        if (!part.when.holds(groups[g].task.columns)) continue;
        scored[g] = true;
        std::fill(by_group[g].begin(), by_group[g].end(), RewardScore());
        applicable.push_back({groups[g].task, groups[g].completions, by_group[g]});
      }
      if (!applicable.empty()) part.reward->score_groups(applicable);
      given.push_back(std::move(by_group));
    }
    for (size_t g = 0; g < groups.size(); ++g)
      HONE_CHECK(scored[g], "reward composite: no part applies to task '", groups[g].task.id, "'; ",
                 conditions(groups[g].task));
    for (size_t g = 0; g < groups.size(); ++g)
      for (size_t i = 0; i < groups[g].scores.size(); ++i) {
        RewardScore sum;
        double weights = 0;
        for (size_t p = 0; p < parts_.size(); ++p) add(sum, weights, given[p][g][i], names_[p], parts_[p].weight);
        sum.skipped = sum.parts.empty() && !sum.failed;
        if (normalize_ && weights != 0) sum.score /= weights;
        groups[g].scores[i] = std::move(sum);
      }
  }
  // The first part that applies to the task and reads answers provides them.
  bool reads_answers(const Task& task) const override { return reader_of(task); }
  std::optional<std::string> read_answer(const Task& task, const Completion& completion) const override {
    const Reward* reader = reader_of(task);
    return reader ? reader->read_answer(task, completion) : std::nullopt;
  }
  bool same_answers(const Task& task, const std::string& a, const std::string& b) const override {
    const Reward* reader = reader_of(task);
    return reader ? reader->same_answers(task, a, b) : a == b;
  }
  bool on_host() const override {
    return std::all_of(parts_.begin(), parts_.end(), [](const CompositePart& part) { return part.reward->on_host(); });
  }
  Metrics part_weights() const override {
    Metrics out;
    for (size_t p = 0; p < names_.size(); ++p) out[names_[p]] = parts_[p].weight;
    return out;
  }
  int64_t concurrency() const override {
    int64_t most = 0;
    for (const CompositePart& part : parts_) most = std::max(most, part.reward->concurrency());
    return most;
  }

 private:
  const Reward* reader_of(const Task& task) const {
    for (const CompositePart& part : parts_)
      if (part.when.holds(task.columns) && part.reward->reads_answers(task)) return part.reward.get();
    return nullptr;
  }

  static void add(RewardScore& sum, double& weights, const RewardScore& part, const std::string& name, double weight) {
    if (!part.note.empty()) sum.note += (sum.note.empty() ? "" : "; ") + name + ": " + part.note;
    if (part.failed) {
      sum.failed = true;
      sum.failed_parts.push_back(name);
      for (const std::string& inner : part.failed_parts) sum.failed_parts.push_back(name + "/" + inner);
    }
    if (part.skipped || part.failed) return;
    sum.score += weight * part.score;
    weights += weight;
    sum.parts[name] = part.score;
    for (const auto& [inner, score] : part.parts) sum.parts[name + "/" + inner] = score;
  }

  // Describes the parts' conditions and the row's values for a message.
  std::string conditions(const Task& task) const {
    std::string out;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const Json* member = task.columns.is_object() ? task.columns.find(parts_[p].when.column) : nullptr;
      out += concat(p == 0 ? "" : ", ", names_[p], " needs column '", parts_[p].when.column, "', which is ",
                    member ? member->dump() : "missing");
    }
    return out;
  }

  std::vector<CompositePart> parts_;
  bool normalize_ = false;
  std::vector<std::string> names_;  // unique names of the parts: a second "math" is "math_2"
};

[[maybe_unused]] const bool added = rewards().add("composite", [] { return std::unique_ptr<Reward>(new Composite); });

}  // namespace

}  // namespace hone
