#pragma once
// An objective evaluated on numbers from a file (`hone objective`): how anyone checks a loss against another framework.
#include <string_view>

#include "core/io/json.h"

namespace hone {

// input is one object. A nested field is a list for each sequence of numbers for each token; sequences of a group are
// adjacent, a pair is chosen, then rejected:
//   logp             nested; the log-probs under the weights being trained
//   mask             nested; 1 where trained on. Default: ones
//   behavior_logp, old_logp, reference_logp, entropy, value, old_value, returns
//                    nested; what the objective asks of them. With neither of the first two, the policy is taken to be
//                    the sampler
//   rewards          one for each sequence: the objective makes the advantages, over groups of group_size (default: all
//   sequences are one group) advantages       or these: one for each sequence, or nested config           the
//   objective's own keys, as in a recipe
// Returns {loss, grad (dLoss/dlogp, nested), advantages (one for each sequence; nested where tokens differ; null
// without), metrics}, and grad_entropy, grad_value where those columns were given. An Error names `source` and the
// field.
Json evaluate_objective(std::string_view name, const Json& input, std::string_view source);

}  // namespace hone
