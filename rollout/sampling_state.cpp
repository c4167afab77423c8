#include "rollout/sampling_state.h"

#include <algorithm>

namespace hone {

RowSamplingParams sample_params(const Sequence& sequence, int64_t completion_index) {
  const GenerationRequest& request = sequence.request_state->request;
  return {.temperature = static_cast<float>(request.sampling.temperature),
          .top_p = static_cast<float>(request.sampling.top_p),
          .min_p = static_cast<float>(request.sampling.min_p),
          .top_k = static_cast<int32_t>(std::min<int64_t>(request.sampling.top_k, INT32_MAX)),
          .seed = static_cast<uint64_t>(request.sampling.seed),
          .stream = request.id * 65536 + static_cast<uint64_t>(completion_index),
          .position = sequence.tokens.size()};
}

static bool has_penalties(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
}

static LogitAdjustment& adjustment_of(SamplingState& state, int32_t id) {
  const auto place = std::ranges::find(state.adjustments, id, &LogitAdjustment::id);
  return place != state.adjustments.end() ? *place : state.adjustments.emplace_back(LogitAdjustment{.id = id});
}

SamplingState sampling_state(const Sequence& sequence, int64_t completion_index) {
  const GenerationRequest& request = sequence.request_state->request;
  const SamplingParams& sampling = request.sampling;
  SamplingState out{.sample = sample_params(sequence, completion_index),
                    .penalties = {},
                    .adjustments = {},
                    .top_logprobs = request.top_logprobs};
  out.penalties.frequency_penalty = sampling.frequency_penalty;
  out.penalties.presence_penalty = sampling.presence_penalty;
  out.penalties.repetition_penalty = static_cast<float>(sampling.repetition_penalty);
  out.penalties.counts = has_penalties(sampling);
  for (const auto& [id, times] : sequence.counts)
    out.adjustments.push_back({.id = id, .times = static_cast<int32_t>(times)});
  for (const LogitBias& logit_bias : sampling.logit_bias)
    adjustment_of(out, static_cast<int32_t>(logit_bias.id)).bias = static_cast<float>(logit_bias.bias);
  out.penalties.stops_after = static_cast<int32_t>(std::max<int64_t>(sampling.min_tokens - sequence.written(), 0));
  if (out.penalties.stops_after > 0)
    for (const int32_t id : sequence.request_state->stop_ids) adjustment_of(out, id).stops = 1;
  return out;
}

SamplingState next_sampling_state(SamplingState state, int32_t id) {
  ++state.sample.position;
  state.penalties.stops_after = std::max(state.penalties.stops_after - 1, 0);
  if (state.penalties.counts == 0) return state;
  LogitAdjustment& adjustment = adjustment_of(state, id);
  adjustment.times = std::max(adjustment.times, 0) + 1;
  return state;
}

void add_token(Sequence& sequence, int32_t id) {
  sequence.tokens.push_back(id);
  if (has_penalties(sequence.request_state->request.sampling)) ++sequence.counts[id];
}

}  // namespace hone
