#pragma once
// Log-likelihoods of the texts of a task's problems. Host threads render and encode the next problems while the device
// computes. A token that texts share, of one problem or of neighbors, is computed once
// (rollout/shared_prefix_logprobs.h). Ranks compute parts of the problems (EvalTarget::ranks).
#include <functional>
#include <vector>

#include "eval/continuation.h"
#include "eval/prompts.h"
#include "eval/task.h"

namespace hone {

struct LikelihoodJob {
  const std::vector<EvalExample>& docs;
  const PromptRenderer& renderer;
  int64_t max_length = 0;  // tokens of a text
  bool greedy = false;     // fill ProblemLikelihoods::greedy
  // The texts of docs[i], at least one. Any thread may call it.
  std::function<std::vector<ContinuationText>(size_t i)> texts;
};

struct ProblemLikelihoods {
  Json prompt;               // as a sample shows it
  std::vector<double> logp;  // of each text: the sum over its tokens
  std::vector<bool> greedy;  // whether greedy decoding writes the text
};

// Calls visit(i, likelihoods) once for each problem, in any order, on the calling thread. Adds num_tokens to `out`, and
// the number of problems whose prompt was cut as the fact "cut".
void compute_likelihoods(EvalTarget& target, const LikelihoodJob& job, EvalRun& out,
                         const std::function<void(size_t i, ProblemLikelihoods likelihoods)>& visit);

}  // namespace hone
