// SamplingState: which logits are adjusted, and how the state advances.
#include "rollout/sampling_state.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

namespace hone {
namespace {

// Prompt 5 5 9 and the first num_tokens of the completion 9 2 2.
Sequence sequence_of(const SamplingParams& sampling, size_t num_tokens) {
  Sequence out;
  out.request_state = std::make_shared<RequestState>();
  out.request_state->request.prompt = {5, 5, 9};
  out.request_state->request.sampling = sampling;
  out.request_state->stop_ids = {2, 7};
  out.tokens = {5, 5, 9};
  if (sampling.repetition_penalty != 1) out.counts = {{5, 0}, {9, 0}};
  for (size_t i = 0; i < num_tokens; ++i) add_token(out, std::array{9, 2, 2}[i]);
  return out;
}

// "id: times bias" of each adjustment; ! marks a stop id.
std::string adjustments_of(const SamplingParams& sampling, size_t num_tokens) {
  std::string out;
  for (const LogitAdjustment& e : sampling_state(sequence_of(sampling, num_tokens), 0).adjustments)
    out += concat(out.empty() ? "" : ", ", e.id, e.stops ? "!: " : ": ", e.times, " ", e.bias);
  return out;
}

TEST(SamplingState, PlainSamplingAdjustsNothing) {
  EXPECT_EQ(adjustments_of({.stop = {}, .stop_ids = {}}, 3), "");
  EXPECT_FALSE(sampling_state(sequence_of({.stop = {}, .stop_ids = {}}, 3), 0).adjusts_logits());
}

TEST(SamplingState, StopIdsAreBannedUntilMinTokensAreThere) {
  const SamplingParams sampling{.min_tokens = 2, .stop = {}, .stop_ids = {}};
  EXPECT_EQ(adjustments_of(sampling, 0), "2!: -1 0, 7!: -1 0");
  EXPECT_EQ(adjustments_of(sampling, 1), "2!: -1 0, 7!: -1 0");
  EXPECT_EQ(sampling_state(sequence_of(sampling, 1), 0).penalties.stops_after, 1);
  EXPECT_EQ(adjustments_of(sampling, 2), "");
}

TEST(SamplingState, PresenceAndFrequencyCountTheCompletionOnly) {
  const SamplingParams sampling{.presence_penalty = 0.5, .frequency_penalty = 0.25, .stop = {}, .stop_ids = {}};
  EXPECT_EQ(adjustments_of(sampling, 0), "");
  EXPECT_TRUE(sampling_state(sequence_of(sampling, 0), 0).adjusts_logits());  // after the first sampled token
  EXPECT_EQ(adjustments_of(sampling, 3), "2: 2 0, 9: 1 0");
  const RowPenalties penalties = sampling_state(sequence_of(sampling, 3), 0).penalties;
  EXPECT_EQ(penalties.presence_penalty, 0.5);
  EXPECT_EQ(penalties.frequency_penalty, 0.25);
  EXPECT_EQ(penalties.repetition_penalty, 1);
}

TEST(SamplingState, RepetitionCountsPromptAndCompletion) {
  const SamplingParams sampling{.repetition_penalty = 2, .frequency_penalty = 0.25, .stop = {}, .stop_ids = {}};
  EXPECT_EQ(adjustments_of(sampling, 0), "5: 0 0, 9: 0 0");
  EXPECT_EQ(adjustments_of(sampling, 3), "2: 2 0, 5: 0 0, 9: 1 0");
}

TEST(SamplingState, ABiasAndAPenaltyOfAnIdAreOneAdjustment) {
  const SamplingParams sampling{
      .min_tokens = 1, .repetition_penalty = 2, .logit_bias = {{9, 4}, {3, -1}, {7, 50}}, .stop = {}, .stop_ids = {}};
  EXPECT_EQ(adjustments_of(sampling, 0), "5: 0 0, 9: 0 4, 3: -1 -1, 7!: -1 50, 2!: -1 0");
  EXPECT_EQ(adjustments_of(sampling, 1), "5: 0 0, 9: 1 4, 3: -1 -1, 7: -1 50");
}

TEST(SamplingState, TheNextStateEqualsThatOfTheLongerCompletion) {
  const SamplingParams sampling{.min_tokens = 2,
                                .repetition_penalty = 2,
                                .frequency_penalty = 0.5,
                                .logit_bias = {{9, 4}, {3, -1}},
                                .stop = {},
                                .stop_ids = {}};
  for (size_t num_tokens = 0; num_tokens < 3; ++num_tokens) {
    Sequence sequence = sequence_of(sampling, num_tokens);
    const SamplingState before = sampling_state(sequence, 0);
    for (const int32_t id : {9, 3, 40}) {
      const SamplingState next = next_sampling_state(before, id);
      Sequence longer = sequence;
      add_token(longer, id);
      const SamplingState expected = sampling_state(longer, 0);
      EXPECT_EQ(next.sample.position, expected.sample.position);
      EXPECT_EQ(next.penalties.stops_after, expected.penalties.stops_after);
      std::map<int32_t, std::pair<int32_t, float>> edits, wanted;  // without ids that may stop by now
      for (const LogitAdjustment& e : next.adjustments)
        if (e.times >= 0 || e.bias != 0 || next.penalties.stops_after > 0) edits[e.id] = {e.times, e.bias};
      for (const LogitAdjustment& e : expected.adjustments) wanted[e.id] = {e.times, e.bias};
      EXPECT_EQ(edits, wanted) << num_tokens << ", " << id;
    }
  }
}

TEST(SamplingState, TheRngDrawDependsOnSeedRequestCompletionAndPosition) {
  Sequence sequence = sequence_of({.temperature = 0.5, .top_k = 7, .seed = 11, .stop = {}, .stop_ids = {}}, 2);
  sequence.request_state->request.id = 4;
  const RowSamplingParams params = sample_params(sequence, 6);
  EXPECT_EQ(params.temperature, 0.5f);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.seed, 11u);
  EXPECT_EQ(params.stream, 4u * 65536 + 6);
  EXPECT_EQ(params.position, 5u);
}

}  // namespace
}  // namespace hone
