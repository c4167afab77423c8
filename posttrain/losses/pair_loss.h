#pragma once
// What losses on pairs of replies (chosen, then rejected) are made of, in double precision. A preference objective is a
// choice of them.
#include <limits>

#include "train/objective.h"

namespace hone {

namespace columns {
// Of preference data.
inline const Column margin = register_column(
    "margin", {.doc = "by how much a pair's chosen score is to exceed the rejected one; read off the chosen sequence",
               .per_sequence = true,
               .alias = "advantages"});
inline const Column mismatched_logp = register_column(
    "mismatched_logp",
    {.doc = "the policy's log-prob, before the step, of a completion that answers another prompt (KTO's KL estimate)"});
}  // namespace columns

double softplus(double x);  // log(1 + exp(x)) = -log sigmoid(-x)
double sigmoid(double x);

// A function of a pair's margin and its derivative.
struct PairLoss {
  double loss = 0, dmargin = 0;
};

// -log sigmoid(z), or the mean of both directions' where a share of the pairs is taken to be the wrong way round
// (Mitchell 2023). Derivative by z.
PairLoss logistic_loss(double z, double smoothing);

// How a reply's masked tokens count: by 1 up to `head` of them, by `tail` after.
struct TokenWeights {
  double first_tokens = std::numeric_limits<double>::infinity(), tail = 1;
};

// One reply of a batch: sums over its masked tokens.
struct SequenceSums {
  double tokens = 0;     // masked tokens, unweighted
  double logp = 0;       // weighted sum of log-probs
  double log_ratio = 0;  // weighted sum of logp - reference_logp; 0 without a reference
  // Of a mean over the reply's tokens; a reply without any has weight 1 (and sums of 0).
  double mean_weight() const { return tokens > 0 ? 1 / tokens : 1; }
};
SequenceSums sum_completion(const TokenBatch& batch, size_t sequence, TokenWeights weights = {});
// Writes the gradient of slope * (weighted sum of log-probs) for the reply.
void add_sequence_gradient(const TokenBatch& batch, TokenGrad grad, size_t sequence, double slope,
                           TokenWeights weights = {});

// TRL's rewards/chosen, rejected, accuracies and margins of a pair.
void add_pair_rewards(MetricSums& metrics, double chosen, double rejected);

}  // namespace hone
