#pragma once
// The interface of training objectives. One file holds an objective: its settings, its advantages and its loss. It sees
// log-probabilities on the host, never logits, layers, ranks or devices.
//
//   struct GrpoSettings : ObjectiveSettings { ... };        // keys of a recipe: values only
//   class Grpo : public Objective { ... };                  // the run-time object, made from the settings
//   [[maybe_unused]] const bool added = add_objective<GrpoSettings>("grpo");
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/registry.h"
#include "core/config/fields.h"
#include "core/io/checkpoint.h"
#include "core/io/metrics.h"
#include "data/columns.h"
#include "data/sample.h"

namespace hone {

// What a loss averages over. Its scale is 1 / (number of these units in the optimizer step). `token` counts masked
// tokens.
enum class LossUnit : uint8_t { token, sequence, pair };

// What an objective learns from. Each kind of stage has one of these.
enum class TrainingData : uint8_t {
  rewarded,      // completions that the stage samples and rewards
  completions,   // single completions
  unpaired,      // single completions, each desirable or not
  pairs,         // a chosen and a rejected completion
  scored_pairs,  // the scores of such a pair
};
std::string describe(TrainingData data);

struct Needs {
  // Columns of samples that the loss reads; an absent one is an Error. If behavior_logp is needed without old_logp,
  // old_logp may replace it. If both are needed, both must be present: rollouts are stale, or sampled with other
  // arithmetic.
  std::vector<Column> columns = {};
  // Columns that the loss or compute_advantages() reads if they are present.
  std::vector<Column> optional = {};
  bool entropy = false, critic = false;  // the trainer also computes the column entropy; value
  bool token_accuracy = false;           // the trainer also measures mean_token_accuracy
  LossUnit unit = LossUnit::token;
  // dLoss/dlogp does not depend on logp (pretraining, SFT): lm_head, loss and backward are then one pass without a
  // host sync.
  bool loss_linear_in_logp = false;
  TrainingData data = TrainingData::rewarded;

  // True if `columns` names it.
  bool has(Column column) const;
};

// T tokens of S sequences end to end, on the host, with views of their columns. Members of a group (a pair: chosen,
// then rejected) are adjacent.
struct TokenBatch {
  std::span<const int32_t> offsets;  // [S+1]
  // 1 / (number of needs().unit in the optimizer step), so micro-batches change a gradient by rounding only.
  double scale = 1;
  ColumnViews columns = {};

  size_t num_sequences() const { return offsets.empty() ? 0 : offsets.size() - 1; }
  size_t num_tokens() const { return offsets.empty() ? 0 : static_cast<size_t>(offsets.back()); }
  bool has(Column column) const { return columns.has(column); }
  // An empty span if the column is absent.
  std::span<const float> find(Column column) const { return columns.find(column); }
  // An absent column is an Error that names it. A batch without tokens has every column, empty.
  std::span<const float> operator[](Column column) const { return num_tokens() == 0 ? find(column) : columns[column]; }
};

// What one sequence adds to the number of units in TokenBatch::scale: its masked tokens, 1, or half a pair.
double count_of(LossUnit unit, std::span<const float> mask);
// 1 / count; a step without anything to train on has scale 1 (and loss 0).
double scale_of(double count);
// Throws an Error if a column has a wrong size, or if one that `needs` names is absent. An entropy that is only
// measured may be absent.
void check_batch(const Needs& needs, const TokenBatch& batch);

// dLoss/d(column), zero on entry; empty if the batch does not have the column.
struct TokenGrad {
  std::span<float> logp, entropy, value;
};

// Metrics of a loss over micro-batches: weighted sums, minima and maxima, which do not depend on how a step is split.
// Names of minima end in min, names of maxima in max, and no other name does: fold_metrics() relies on it.
class MetricSums {
 public:
  void add(const std::string& name, double sum, double weight) {
    auto& s = sums_[name];
    s.first += sum;
    s.second += weight;
  }
  void minimum(const std::string& name, double value) {
    auto [at, fresh] = extremes_.emplace(name, value);
    if (!fresh && value < at->second) at->second = value;
  }
  void maximum(const std::string& name, double value) {
    auto [at, fresh] = extremes_.emplace(name, value);
    if (!fresh && value > at->second) at->second = value;
  }
  // Adds the sums of another micro-batch. The order of calls decides the last bits of the sums.
  void merge(const MetricSums& other);
  // Bytes that from_bytes() reads back exactly, for other ranks. Throws an Error for bytes that to_bytes() did not
  // write.
  std::string to_bytes() const;
  static MetricSums from_bytes(std::string_view bytes);
  // A name whose weights sum to 0 is left out.
  Metrics means() const;

 private:
  std::map<std::string, std::pair<double, double>> sums_;
  std::map<std::string, double> extremes_;
};

// Combines the metrics of several updates: minima, maxima, and the mean of everything else over the updates that have
// it.
Metrics fold_metrics(std::span<const Metrics> updates);

// An objective in a run. One thread.
class Objective : public Stateful {
 public:
  virtual Needs needs() const = 0;
  // Computes advantages (and returns) from rewards. Called once a step, before the epochs, when rewards, reference
  // log-probs and values are known. May look across groups, take samples out of the loss (clear_mask), and adapt state
  // for the next step. Adds its metrics to `metrics`.
  virtual void compute_advantages(std::span<Group>, MetricSums&) {}
  // The part of compute_advantages() that needs no rewards, which calls it first: takes tokens out of the loss, or
  // marks them in columns of the objective's own, over all samples of a rollout batch. `hone objective` calls it alone
  // if the file has advantages.
  virtual void select_tokens(std::span<Group>, MetricSums&) {}
  // True if the sample adds nothing to the loss and its gradient under any weights. Called after compute_advantages().
  // The trainer then skips the sample's backward pass; the sample still counts in `scale`.
  virtual bool has_no_gradient(const Sample&) const { return false; }
  // Returns the micro-batch's share of the step's loss and writes its gradient.
  virtual double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const = 0;
  // Most objectives have no state.
  void save_state(StateSection&) const override {}
  void load_state(const StateSection&) override {}
};

// What the recipe says about the samples of an objective.
struct RunFacts {
  // Completions are sampled with older weights than the learner's, with other arithmetic, or from a truncated or biased
  // distribution.
  bool off_policy = false;
  double temperature = 1;  // of sampling; 0 = greedy
  int64_t group_size = 0;  // completions of a prompt; 0: the stage samples none
  // By Task::source, the weights of the rewards that Sample::reward is the sum of, by their names in reward_parts. ""
  // is what the others leave of it: a reward without parts.
  std::map<std::string, Metrics> reward_weights = {};
};

struct ObjectiveSettings;
using ObjectiveFactory = std::unique_ptr<ObjectiveSettings> (*)();
Registry<ObjectiveFactory>& objectives();

// Hyper-parameters of an objective: values, no run-time objects. Names are TRL's.
struct ObjectiveSettings {
  virtual ~ObjectiveSettings() = default;
  static const Registry<ObjectiveFactory>& registry() { return objectives(); }

  virtual void fields(Fields&) {}
  // True if the objective compares the completions of a group with each other: a group of one, or of equal completions,
  // has no gradient.
  virtual bool compares_group() const { return false; }
  // Throws an Error if the settings do not fit the run.
  virtual void validate(const RunFacts& facts) const;
  // Sentences for the log about settings that are allowed and rarely intended.
  virtual std::vector<std::string> warnings(const RunFacts&) const { return {}; }
  // A copy with `auto` replaced by its meaning in this run, for the resolved recipe; null: nothing to replace.
  virtual std::shared_ptr<const ObjectiveSettings> resolved(const RunFacts&) const { return nullptr; }
  virtual std::unique_ptr<Objective> make(const RunFacts& facts) const = 0;
};

template <class Settings>
bool add_objective(std::string name) {
  return objectives().add(std::move(name), [] { return std::unique_ptr<ObjectiveSettings>(new Settings); });
}
// Reports an error at the recipe's key if the objective does not learn from `data`, what the stage trains on.
void require_data(Fields& f, const std::string& kind, const ObjectiveSettings& settings, TrainingData data);
// Names of the objectives that learn from `data` with their default settings.
std::vector<std::string> objectives_for(TrainingData data);
// Makes an objective with its default settings.
std::unique_ptr<Objective> make_objective(std::string_view kind, const RunFacts& facts = {});

}  // namespace hone
