#pragma once
// Objective: a training objective, whole, in one file: who gets credit, and what loss. It sees log-probabilities on the
// host, never logits, layers, ranks or devices. It joins with one line:
//   [[maybe_unused]] const bool added = objectives().add("grpo", [] { return std::unique_ptr<Objective>(new Grpo); });
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "core/config/fields.h"
#include "core/io/checkpoint.h"
#include "core/io/metrics.h"
#include "data/columns.h"
#include "data/sample.h"

namespace hone {

// What a loss averages over: its scale is 1 / (how many of these the whole optimizer step holds). token counts masked
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
  // Columns of samples that the loss reads; one that is absent is an Error. behavior_logp alone may be old_logp
  // instead. If both are named, both must be there: rollouts are stale, or sampled with other arithmetic.
  std::vector<Column> columns = {};
  // Columns that the loss or compute_advantages() reads if they are there.
  std::vector<Column> optional = {};
  bool entropy = false, critic = false;  // columns that the trainer computes besides logp: entropy; value
  LossUnit unit = LossUnit::token;
  // dLoss/dlogp does not depend on logp (pretraining, SFT): head, loss and backward are then one pass without a host
  // sync.
  bool loss_linear_in_logp = false;
  TrainingData data = TrainingData::rewarded;

  // True if `columns` names it.
  bool has(Column column) const;
};

// T tokens of S sequences end to end, on the host, with views of their columns. Members of a group (a pair: chosen,
// then rejected) are adjacent.
struct TokenBatch {
  std::span<const int32_t> offsets;  // [S+1]
  double scale = 1;  // 1 / (count of needs().unit in the whole optimizer step), so that micro-batches change a gradient
                     // by rounding only
  ColumnViews columns = {};

  size_t num_sequences() const { return offsets.empty() ? 0 : offsets.size() - 1; }
  size_t num_tokens() const { return offsets.empty() ? 0 : static_cast<size_t>(offsets.back()); }
  bool has(Column column) const { return columns.has(column); }
  // An empty span if the column is absent.
  std::span<const float> find(Column column) const { return columns.find(column); }
  // An absent column is an Error that names it. A batch without tokens has every column, empty.
  std::span<const float> operator[](Column column) const { return num_tokens() == 0 ? find(column) : columns[column]; }
};

// What one sequence adds to the count that TokenBatch::scale is one over: its masked tokens, itself, or half a pair.
double count_of(LossUnit unit, std::span<const float> mask);
// 1 / count; a step without anything to train on has scale 1 (and loss 0).
double scale_of(double count);
// Checks the size of each column, and that the columns that `needs` names are there. An entropy that is only measured
// may be absent.
void check_batch(const Needs& needs, const TokenBatch& batch);

// dLoss/d(column), zero on entry; empty if the batch does not have the column.
struct TokenGrad {
  std::span<float> logp, entropy, value;
};

// Metrics of a loss over micro-batches: sums with their weights, minima and maxima, so that a step's do not depend on
// how it was split. A name that ends in min is a minimum's, one in max a maximum's, and no other is (fold_metrics).
class MetricSums {
 public:
  void add(const std::string& name, double sum, double weight) {
    auto& s = sums_[name];
    s.first += sum, s.second += weight;
  }
  void minimum(const std::string& name, double value) {
    auto [at, fresh] = extremes_.emplace(name, value);
    if (!fresh && value < at->second) at->second = value;
  }
  void maximum(const std::string& name, double value) {
    auto [at, fresh] = extremes_.emplace(name, value);
    if (!fresh && value > at->second) at->second = value;
  }
  // A name whose weights sum to 0 is left out.
  Metrics means() const;

 private:
  std::map<std::string, std::pair<double, double>> sums_;
  std::map<std::string, double> extremes_;
};

// One row for several updates: minima, maxima, and of everything else the mean over the updates that have it.
Metrics fold_metrics(std::span<const Metrics> updates);

class Objective : public Stateful {
 public:
  // Hyper-parameters, as recipe keys; names are TRL's.
  virtual void fields(Fields&) {}
  virtual void prepare() {}
  // Before the first step: replies are drawn by older weights than those that learn, with other arithmetic, or from a
  // truncated or biased distribution.
  virtual void off_policy() {}
  // True if credit() compares the replies of a group with each other: a group of one, or of equal replies, has no
  // gradient.
  virtual bool compares_group() const { return false; }
  // Settings that are allowed and seldom meant, as sentences for the log. After off_policy(), if that is called.
  virtual std::vector<std::string> warnings() const { return {}; }
  virtual Needs needs() const = 0;
  // Once rewards, reference and values are known, before the epochs: rewards -> advantages (and returns). May look
  // across groups, take samples out of the loss (their mask), and learn for the next time, which is then its state.
  // `metrics` gets what it measured.
  virtual void compute_advantages(std::span<Group>, MetricSums&) {}
  // True if the sample, as credit() left it, adds nothing to the loss and its gradient whatever the weights are: the
  // trainer leaves its pass out (it still counts in `scale`).
  virtual bool has_no_gradient(const Sample&) const { return false; }
  // The micro-batch's share of the step's loss; writes its gradient.
  virtual double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const = 0;
  // Most objectives have no state.
  void save_state(StateSection&) const override {}
  void load_state(const StateSection&) override {}
};

using ObjectiveFactory = std::unique_ptr<Objective> (*)();
Registry<ObjectiveFactory>& objectives();
// Names of the objectives that learn from this, under their default settings.
std::vector<std::string> objectives_for(TrainingData data);

// How a stage names its objective: `objective`, and the objective's own keys in the same table.
struct ObjectiveSpec {
  std::string objective;
  std::shared_ptr<Objective> made;  // while fields() reads
  void fields(Fields& f) {
    f("objective", objective, "what is optimised (hone list objectives)");
    if (f.reading()) {
      f.require("objective", objectives().contains(objective), objectives().unknown(objective));
      made = objectives().at(objective)();
    }
    if (!made) made = objectives().at(objective)();
    made->fields(f);
    if (f.reading()) made->prepare();
  }
  // Refuses, at the key's place, an objective that does not learn from what the stage trains on.
  void require_data(Fields& f, TrainingData data) const {
    const TrainingData needed = made->needs().data;
    f.require("objective", needed == data,
              concat(objective, " learns from ", describe(needed), ", and this stage trains on ", describe(data),
                     ": its objectives are ", join(objectives_for(data))));
  }
};

}  // namespace hone
