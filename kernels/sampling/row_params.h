#pragma once
// What the sampling ops take for each row. The host writes arrays of these structs; kernels read them as bytes.
#include <cstdint>

namespace hone {

// One row's parameters. Temperature 0 is greedy (ties to the lowest id); its log-probs are those of temperature 1.
struct RowSamplingParams {
  float temperature = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;                            // 0 = all
  uint64_t seed = 0, stream = 0, position = 0;  // of the Philox number
};

// The factor on a row's logits. The learner passes the same to logprob_forward.
inline float inverse_temperature(float temperature) { return temperature == 0 ? 1 : 1 / temperature; }

// The change of one logit of a row.
struct LogitAdjustment {
  int32_t id = -1;     // -1: unused; unused ones follow the others of the row
  int32_t times = -1;  // number of times it was sampled; 0: penalized because the prompt has it; -1: not penalized
  float bias = 0;
  int32_t stops = 0;  // 1: must not be sampled while RowPenalties::stops_after is above 0
  float was = 0;      // the original logit, between apply_logit_processors and restore_logits
};
// The penalties of a row.
struct RowPenalties {
  double frequency_penalty = 0, presence_penalty = 0;
  float repetition_penalty = 1;  // above 0
  int32_t counts = 0;            // 1: sampled tokens are penalized from then on
  int32_t stops_after = 0;       // tokens to sample before ids with `stops` may be sampled
};

}  // namespace hone
