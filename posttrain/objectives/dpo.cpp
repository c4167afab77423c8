// The objective "dpo" (Rafailov et al. 2023) with its loss types, for pairs of completions.
#include <algorithm>
#include <numeric>

#include "data/source_column.h"
#include "posttrain/losses/pair_loss.h"
#include "posttrain/losses/preference_loss.h"
#include "posttrain/losses/surrogate.h"

namespace hone {
namespace {

struct DpoSettings : ObjectiveSettings {
  PreferenceKeys keys;
  double ld_alpha = 1;
  std::vector<std::string> loss_type = {"sigmoid"};
  std::vector<double> loss_weights;

  void fields(Fields& f) override {
    f("beta", keys.beta, "weight of the log-ratios to the reference; a larger beta keeps the policy closer to it");
    f("label_smoothing", keys.label_smoothing,
      "assumed share of pairs with swapped labels (sigmoid, sigmoid_norm, robust, exo_pair, aot); 0 = none");
    f("loss_type", loss_type,
      "one or more of sigmoid | sigmoid_norm (means over a completion's tokens) | robust | hinge | ipo | exo_pair | "
      "nca_pair | bco_pair | sppo_hard | aot | apo_zero | apo_down | discopop | sft (the chosen completions' negative "
      "log-likelihood)");
    f("loss_weights", loss_weights, "a weight for each loss_type; empty: 1 each");
    f("discopop_tau", keys.discopop_tau, "discopop: temperature of the mixture of its two losses");
    f("ld_alpha", ld_alpha, "weight of a completion's tokens beyond the length of the pair's shorter completion");
    if (f.reading()) use_whole_names();
    f.require("beta", keys.beta > 0, "beta must be above 0");
    f.require("loss_type", !loss_type.empty(), "loss_type must name at least one loss");
    for (const std::string& type : loss_type) check(f, type);
    f.require("loss_weights", loss_weights.empty() || loss_weights.size() == loss_type.size(),
              concat("loss_weights has ", loss_weights.size(), " numbers for ", loss_type.size(), " losses"));
    f.require("loss_weights", std::ranges::all_of(loss_weights, [](double w) { return w >= 0; }),
              "loss_weights must not be negative");
    f.require("label_smoothing", keys.label_smoothing >= 0 && keys.label_smoothing < 0.5,
              "label_smoothing must be in [0, 0.5)");
    f.require("label_smoothing",
              keys.label_smoothing == 0 || std::ranges::any_of(loss_type,
                                                               [](const auto& t) {
                                                                 return preference_losses().contains(t) &&
                                                                        preference_losses().at(t).smooths;
                                                               }),
              "loss_type " + (loss_type.empty() ? "" : loss_type.front()) + " has no label_smoothing: set it to 0");
    f.require("discopop_tau", keys.discopop_tau > 0, "discopop_tau must be above 0");
    f.require("ld_alpha", ld_alpha == 1 || std::ranges::find(loss_type, "aot") == loss_type.end(),
              "aot compares sums over whole completions: leave ld_alpha at 1");
    f.require("ld_alpha", ld_alpha >= 0 && ld_alpha <= 1, "ld_alpha must be in [0, 1]");
  }
  std::unique_ptr<Objective> make(const RunFacts&) const override;

 private:
  void check(Fields& f, const std::string& type) const {
    f.require("loss_type", preference_losses().contains(type), preference_losses().unknown(type));
    f.require("label_smoothing",
              !preference_losses().contains(type) || !preference_losses().at(type).needs_smoothing ||
                  keys.label_smoothing > 0,
              concat("loss_type ", type, " needs a label_smoothing above 0, for example 0.001"));
  }
  // The names that papers use, as TRL's.
  void use_whole_names() {
    for (std::string& type : loss_type)
      for (const auto& [paper, trl] :
           {std::pair{"exo", "exo_pair"}, {"nca", "nca_pair"}, {"bco", "bco_pair"}, {"sppo", "sppo_hard"}})
        if (type == paper) type = trl;
  }
};

// A pair's difference of summed log-probs, and its rank among the step's pairs.
struct Margins {
  std::vector<double> policy, reference;
};

// For each pair the reference margin of the pair's rank: the step's policy margins and its reference margins, both
// sorted, are compared rank by rank (Melnyk et al. 2024, AOT).
std::vector<double> margins_of_equal_rank(const Margins& margins) {
  std::vector<size_t> order(margins.policy.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return margins.policy[i]; });
  std::vector<double> sorted = margins.reference, out(order.size());
  std::ranges::sort(sorted);
  for (size_t rank = 0; rank < order.size(); ++rank) out[order[rank]] = sorted[rank];
  return out;
}

double masked_sum(std::span<const float> mask, std::span<const float> logp) {
  double sum = 0;
  for (size_t t = 0; t < mask.size(); ++t)
    if (mask[t] != 0) sum += static_cast<double>(mask[t]) * logp[t];
  return sum;
}

// Direct preference optimization (Rafailov et al. 2023) over pairs: chosen, then rejected. The loss is the weighted sum
// of the loss types.
class Dpo : public Objective {
 public:
  explicit Dpo(const DpoSettings& settings) : settings_(settings) {
    for (size_t i = 0; i < settings.loss_type.size(); ++i)
      parts_.push_back({&preference_losses().at(settings.loss_type[i]),
                        settings.loss_weights.empty() ? 1 : settings.loss_weights[i]});
    averages_ = std::ranges::all_of(parts_, [](const Part& part) { return part.type->averages_tokens; });
  }

  Needs needs() const override {
    Needs out{.columns = {columns::reference_logp},
              .optional = {columns::source},
              .entropy = true,
              .token_accuracy = true,
              .unit = LossUnit::pair,
              .data = TrainingData::pairs};
    if (compares(Compares::margins)) {
      out.columns.push_back(columns::old_logp);
      out.optional.push_back(columns::reference_margin);
    }
    if (compares(Compares::likelihood)) out.optional.push_back(columns::likelihood_weight);
    return out;
  }

  // What a pair's loss needs of the step's other pairs.
  void compute_advantages(std::span<Group> groups, MetricSums&) override {
    const bool ranks = compares(Compares::margins), likelihood = compares(Compares::likelihood);
    Margins margins;
    double tokens = 0;
    std::vector<Group*> pairs;
    for (Group& group : groups)
      if (group.samples.size() == 2) pairs.push_back(&group);
    for (const Group* pair : pairs) {
      const Columns &chosen = pair->samples[0].columns, &rejected = pair->samples[1].columns;
      tokens += count_of(LossUnit::token, chosen.find(columns::mask));
      if (!ranks) continue;
      const auto margin = [&](Column logp) {
        return masked_sum(chosen.find(columns::mask), chosen.find(logp)) -
               masked_sum(rejected.find(columns::mask), rejected.find(logp));
      };
      margins.policy.push_back(margin(columns::old_logp));
      margins.reference.push_back(margin(columns::reference_logp));
    }
    const std::vector<double> ranked = margins_of_equal_rank(margins);
    for (size_t i = 0; i < pairs.size(); ++i)
      for (Sample& sample : pairs[i]->samples) {
        if (ranks) sample.columns.set(columns::reference_margin, {static_cast<float>(ranked[i])});
        if (likelihood)
          sample.columns.set(columns::likelihood_weight,
                             {static_cast<float>(static_cast<double>(pairs.size()) / std::max(tokens, 1.0))});
      }
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    const Step step = step_of(batch);
    double sum = 0;
    for (size_t s = 0; s + 1 < batch.num_sequences(); s += 2) sum += pair_loss(batch, s, step, grad, metrics);
    add_entropy(metrics, batch);
    add_sampling_difference(batch, metrics);
    return sum * batch.scale;
  }

 private:
  // One of the loss types.
  struct Part {
    const PreferenceLoss* type;
    double weight;
  };
  // Numbers of the step by pair.
  struct Step {
    std::vector<double> reference_margins, likelihood_weights;
  };

  bool compares(Compares what) const {
    return std::ranges::any_of(parts_, [&](const Part& part) { return part.type->compares == what; });
  }

  // From the columns of compute_advantages(); without them the batch is the step.
  Step step_of(const TokenBatch& batch) const {
    Step out;
    const std::span<const float> margins = batch.find(columns::reference_margin),
                                 weights = batch.find(columns::likelihood_weight);
    Margins own;
    double tokens = 0;
    for (size_t s = 0; s + 1 < batch.num_sequences(); s += 2) {
      const SequenceSums chosen = sum_completion(batch, s), rejected = sum_completion(batch, s + 1);
      own.policy.push_back(chosen.logp - rejected.logp);
      own.reference.push_back(chosen.logp - chosen.log_ratio - (rejected.logp - rejected.log_ratio));
      tokens += chosen.tokens;
    }
    const size_t pairs = own.policy.size();
    if (margins.empty()) out.reference_margins = margins_of_equal_rank(own);
    for (size_t i = 0; i < pairs; ++i) {
      if (!margins.empty()) out.reference_margins.push_back(margins[2 * i]);
      out.likelihood_weights.push_back(weights.empty() ? static_cast<double>(pairs) / std::max(tokens, 1.0)
                                                       : weights[2 * i]);
    }
    return out;
  }

  double pair_loss(const TokenBatch& batch, size_t s, const Step& step, TokenGrad grad, MetricSums& metrics) const {
    const SequenceSums all = sum_completion(batch, s), other = sum_completion(batch, s + 1);
    const TokenWeights weights{.first_tokens = std::min(all.tokens, other.tokens), .tail = settings_.ld_alpha};
    const SequenceSums chosen = sum_completion(batch, s, weights), rejected = sum_completion(batch, s + 1, weights);
    const auto share_of = [](const SequenceSums& of, bool averages) { return averages ? of.mean_weight() : 1; };
    double loss = 0, chosen_slope = 0, rejected_slope = 0, likelihood_slope = 0;
    for (const Part& part : parts_) {
      if (part.type->compares == Compares::likelihood) {
        likelihood_slope -= part.weight * step.likelihood_weights[s / 2];
        loss -= part.weight * step.likelihood_weights[s / 2] * all.logp;
        continue;
      }
      const double chosen_share = share_of(chosen, part.type->averages_tokens),
                   rejected_share = share_of(rejected, part.type->averages_tokens);
      PairRatios ratios{chosen.log_ratio * chosen_share, rejected.log_ratio * rejected_share};
      if (part.type->compares == Compares::margins)
        ratios = {chosen.logp - rejected.logp, step.reference_margins[s / 2]};
      PreferenceTerm term = part.type->term(ratios, settings_.keys);
      if (part.type->compares == Compares::margins) term.drejected = -term.dchosen;
      loss += part.weight * term.loss;
      chosen_slope += part.weight * term.dchosen * chosen_share;
      rejected_slope += part.weight * term.drejected * rejected_share;
    }
    add_sequence_gradient(batch, grad, s, chosen_slope * batch.scale, weights);
    add_sequence_gradient(batch, grad, s + 1, rejected_slope * batch.scale, weights);
    if (likelihood_slope != 0) add_sequence_gradient(batch, grad, s, likelihood_slope * batch.scale);
    const double chosen_share = share_of(chosen, averages_), rejected_share = share_of(rejected, averages_);
    add_pair_rewards(metrics, batch,
                     {.chosen_sequence = s,
                      .chosen = settings_.keys.beta * chosen.log_ratio * chosen_share,
                      .rejected = settings_.keys.beta * rejected.log_ratio * rejected_share,
                      .loss = loss});
    metrics.add("logps/chosen", chosen.logp * chosen_share, 1);
    metrics.add("logps/rejected", rejected.logp * rejected_share, 1);
    return loss;
  }

  const DpoSettings settings_;
  std::vector<Part> parts_;
  bool averages_ = false;  // all loss types average over tokens
};

std::unique_ptr<Objective> DpoSettings::make(const RunFacts&) const { return std::make_unique<Dpo>(*this); }

[[maybe_unused]] const bool added = add_objective<DpoSettings>("dpo");

}  // namespace
}  // namespace hone
