#include "posttrain/reference.h"

namespace hone {

void Reference::score_into(std::span<Group> groups) {
  std::vector<std::vector<int32_t>> sequences;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) sequences.push_back(sample.tokens);
  std::vector<TokenScores> scores = score_sequences(context_, *model_, sequences, {.temperature = temperature_});
  size_t next = 0;
  for (Group& group : groups)
    for (Sample& sample : group.samples) sample.reference_logp = std::move(scores[next++].logp);
}

}  // namespace hone
