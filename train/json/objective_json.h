#pragma once
// Evaluates an objective on numbers from a file (`hone objective`), to compare a loss with another framework's.
#include <string_view>

#include "core/io/json.h"

namespace hone {

// input is one object. Sequences of a group are adjacent; a pair is chosen, then rejected. Its fields:
//   logp        [[number a token] a sequence]: log-probs under the weights that are trained
//   COLUMN      any registered column (data/columns.h): behavior_logp, old_logp, reference_logp, entropy, value,
//               old_value, returns, ... Per token: nested as logp, or one number a sequence, which its tokens share.
//               Per sequence: a list of numbers. Without mask every token is trained on. Without old_logp and
//               behavior_logp the policy is the sampler. Without old_value, value takes its place
//   rewards     one number a sequence: the objective computes the advantages, over groups of group_size (default: all
//               sequences are one group). Several rewards with reward_weights: train/json/rewards_json.h
//   advantages  a column, instead of rewards. An objective without advantages reads the column that has this alias:
//               labels (kto), margins (bradley_terry)
//   config      the objective's own keys, as in a recipe
// Returns {loss, grad (dLoss/dlogp, nested), advantages (one for each sequence; nested if tokens differ; null if none),
// metrics}, and grad_entropy, grad_value if those columns were given. An Error names `source` and the field.
Json evaluate_objective(std::string_view name, const Json& input, std::string_view source);

}  // namespace hone
