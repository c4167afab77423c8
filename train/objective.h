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
#include "data/sample.h"

namespace hone {

// What a loss averages over: its scale is 1 / (how many of these the whole optimizer step holds). token counts masked
// tokens.
enum class LossUnit : uint8_t { token, sequence, pair };

// What an objective learns from. Each kind of stage has one of these.
enum class TrainingData : uint8_t {
  rewarded,      // completions that the stage samples and rewards
  completions,   // single completions
  labelled,      // single completions, each desirable or not
  pairs,         // a chosen and a rejected completion
  scored_pairs,  // the scores of such a pair
};
std::string describe(TrainingData data);

struct Needs {
  // behavior: what the sampler recorded. old: what the learner computes when the epochs of a step begin; alone,
  // `behavior` takes either. Asked for together, both must be there: rollouts that are stale, or of other arithmetic.
  bool behavior = false, old = false;
  bool reference = false, entropy = false, critic = false;
  LossUnit per = LossUnit::token;
  // dLoss/dlogp does not depend on logp (pretraining, SFT): head, loss and backward are then one pass without a host
  // sync.
  bool loss_linear_in_logp = false;
  TrainingData data = TrainingData::rewarded;
};

// T tokens of S sequences end to end, on the host. Each column is [T]; an empty span is a column this run does not
// have. Entry t belongs to token t given those before it; a sequence's first token has mask 0. Members of a group (a
// pair: chosen, then rejected) are adjacent.
struct TokenBatch {
  std::span<const int32_t> offsets;  // [S+1]
  std::span<const float> logp;       // under the weights being trained
  std::span<const float> old_logp;   // when this step's epochs began
  std::span<const float> behavior_logp, reference_logp, advantage, mask;
  std::span<const float> entropy, value, old_value, returns;
  double scale = 1;  // 1 / (count of needs().per in the whole optimizer step), so that micro-batches change a gradient
                     // by rounding only

  size_t num_sequences() const { return offsets.empty() ? 0 : offsets.size() - 1; }
  size_t num_tokens() const { return offsets.empty() ? 0 : static_cast<size_t>(offsets.back()); }
};

// What one sequence adds to the count that TokenBatch::scale is one over: its masked tokens, itself, or half a pair.
double count_of(LossUnit per, std::span<const float> mask);
// 1 / count; a step without anything to train on has scale 1 (and loss 0).
double scale_of(double count);
// Every column has one entry a token, and those that `needs` asks for are there (an entropy that is only measured may
// be missing); an Error says which is not.
void check_batch(const Needs& needs, const TokenBatch& batch);

// dLoss/d(column), zero on entry; empty where the run does not have the column.
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

}  // namespace hone
