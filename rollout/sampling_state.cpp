#include "rollout/sampling_state.h"

#include <algorithm>

namespace hone {

RowSamplingParams sample_params(const Sequence& sequence, int64_t reply) {
  const GenerationRequest& request = sequence.ticket->request;
  return {.temperature = static_cast<float>(request.sampling.temperature),
          .top_p = static_cast<float>(request.sampling.top_p),
          .min_p = static_cast<float>(request.sampling.min_p),
          .top_k = static_cast<int32_t>(std::min<int64_t>(request.sampling.top_k, INT32_MAX)),
          .seed = static_cast<uint64_t>(request.sampling.seed),
          .stream = request.id * 65536 + static_cast<uint64_t>(reply),
          .position = sequence.tokens.size()};
}

static bool has_penalties(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
}

static LogitAdjustment& edit_of(SamplingState& draw, int32_t id) {
  const auto place = std::ranges::find(draw.edits, id, &LogitAdjustment::id);
  return place != draw.edits.end() ? *place : draw.edits.emplace_back(LogitAdjustment{.id = id});
}

SamplingState sampling_state(const Sequence& sequence, int64_t reply) {
  const GenerationRequest& request = sequence.ticket->request;
  const SamplingParams& sampling = request.sampling;
  SamplingState out{
      .sample = sample_params(sequence, reply), .how = {}, .edits = {}, .top_logprobs = request.top_logprobs};
  out.how.frequency_penalty = sampling.frequency_penalty;
  out.how.presence_penalty = sampling.presence_penalty;
  out.how.repetition_penalty = static_cast<float>(sampling.repetition_penalty);
  out.how.counts = has_penalties(sampling);
  for (const auto& [id, times] : sequence.counts) out.edits.push_back({.id = id, .times = static_cast<int32_t>(times)});
  for (const LogitBias& of : sampling.logit_bias)
    edit_of(out, static_cast<int32_t>(of.id)).bias = static_cast<float>(of.bias);
  out.how.stops_after = static_cast<int32_t>(std::max<int64_t>(sampling.min_tokens - sequence.written(), 0));
  if (out.how.stops_after > 0)
    for (const int32_t id : sequence.ticket->stop_ids) edit_of(out, id).stops = 1;
  return out;
}

SamplingState next_sampling_state(SamplingState draw, int32_t id) {
  ++draw.sample.position;
  draw.how.stops_after = std::max(draw.how.stops_after - 1, 0);
  if (draw.how.counts == 0) return draw;
  LogitAdjustment& edit = edit_of(draw, id);
  edit.times = std::max(edit.times, 0) + 1;
  return draw;
}

void add_token(Sequence& sequence, int32_t id) {
  sequence.tokens.push_back(id);
  if (has_penalties(sequence.ticket->request.sampling)) ++sequence.counts[id];
}

}  // namespace hone
