#pragma once
// Log-probabilities of given token sequences under a model.
#include <span>
#include <vector>

#include "model/model.h"

namespace hone {

struct ScoreOptions {
  double temperature = 1;  // logp and entropy are of softmax(logits / temperature)
  bool entropy = false;
  int64_t batch_tokens = 4096;  // tokens packed into one pass; does not change the results
};

// Entry t belongs to token t given those before it; entry 0 is 0. A sequence may have one token more than the model has
// positions.
struct TokenScores {
  std::vector<float> logp, entropy;
};

std::vector<TokenScores> score_sequences(Context& context, Model& model,
                                         std::span<const std::vector<int32_t>> sequences, const ScoreOptions& options);

}  // namespace hone
