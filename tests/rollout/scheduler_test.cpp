// Scheduler: the parts of each pass, preemption, forks, lookahead and cached prefixes.
#include "rollout/scheduler.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

class SchedulerTest : public ::testing::Test {
 protected:
  static std::vector<KvGroupShape> groups() { return {{.num_kv_heads = 1, .key_dim = 1, .value_dim = 1, .planes = 1}}; }
  void add(int64_t tokens, uint64_t number = 0) {
    Sequence sequence;
    sequence.request_state = std::make_shared<RequestState>();
    sequence.request_state->number = number;
    sequence.tokens.assign(static_cast<size_t>(tokens), static_cast<int32_t>(number));
    states.push_back(sequence.request_state);
    scheduler.add(std::move(sequence));
  }
  // Runs one pass and returns its parts as "number:count".
  std::string pass() {
    std::string out;
    for (const Scheduler::ScheduledSequence& part : scheduler.schedule()) {
      out += concat(out.empty() ? "" : " ", part.sequence->request_state->number, ":", part.count);
      scheduler.advance(*part.sequence, part.count);
      EXPECT_GE(part.sequence->blocks.size() * cache.block_size(), part.sequence->computed);
      if (part.sequence->remaining() == 0) part.sequence->tokens.push_back(1);  // as if a token was sampled
    }
    return out;
  }
  std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context{*device};
  EngineConfig config{.kv_block_size = 4, .kv_cache_tokens = 32, .max_batch_tokens = 10, .max_sequences = 3};
  KvCache cache{context, one_table(groups()), DType::f32, 4, 32};
  Scheduler scheduler{cache, config};
  std::vector<std::shared_ptr<RequestState>> states;
};

TEST_F(SchedulerTest, DecodesComeFirstAndPromptsFillTheBudgetInChunks) {
  add(3, 0), add(12, 1);
  EXPECT_EQ(pass(), "0:3 1:7");
  EXPECT_EQ(pass(), "0:1 1:5");
  EXPECT_EQ(pass(), "0:1 1:1");
}

TEST_F(SchedulerTest, NoMoreRunThanMaxSequences) {
  for (uint64_t i = 0; i < 5; ++i) add(1, i);
  EXPECT_EQ(pass(), "0:1 1:1 2:1");
  EXPECT_EQ(pass(), "0:1 1:1 2:1");
}

TEST_F(SchedulerTest, APromptCountsAsItsCompletions) {
  add(1, 0), add(1, 1), add(1, 2);
  states[1]->request.n = 3;
  EXPECT_EQ(pass(), "0:1");
  states[0]->cancelled = true;
  EXPECT_EQ(pass(), "1:1");
}

TEST_F(SchedulerTest, CompletionsBeyondMaxSequencesWait) {
  add(4, 0);
  states[0]->request.n = 5;
  const auto prompt = scheduler.schedule().at(0).sequence;
  scheduler.advance(*prompt, 4);
  for (int i = 0; i < 5; ++i) {
    Sequence completion = *prompt;
    completion.forked = true;
    completion.tokens.push_back(1);
    scheduler.fork(prompt, completion);
  }
  scheduler.finish(prompt);
  EXPECT_EQ(pass(), "0:1 0:1 0:1");
  scheduler.finish(scheduler.schedule().at(0).sequence);
  EXPECT_EQ(pass(), "0:1 0:1 0:1");  // one of the two waiting ones, with the cached prompt
}

// A completion is as old as its prompt: later requests wait for it and are preempted for it.
TEST_F(SchedulerTest, ACompletionRunsBeforePromptsThatCameAfterItsOwn) {
  add(3, 0), add(16, 1);
  auto parts = scheduler.schedule();
  ASSERT_EQ(parts.size(), 2u);
  for (const Scheduler::ScheduledSequence& part : parts) scheduler.advance(*part.sequence, part.count);
  Sequence completion = *parts[0].sequence;
  completion.forked = true;
  completion.tokens.push_back(1);
  scheduler.fork(parts[0].sequence, completion);
  scheduler.finish(parts[0].sequence);
  EXPECT_EQ(pass(), "0:1 1:9");
}

TEST_F(SchedulerTest, PreemptAllKeepsTheOrder) {
  add(3, 0), add(3, 1), pass();
  scheduler.preempt_all();
  cache.invalidate_prefix_cache();
  EXPECT_EQ(cache.free_blocks(), cache.num_blocks());
  EXPECT_EQ(scheduler.preemptions(), 0);  // counts preemptions for lack of blocks only
  EXPECT_EQ(pass(), "0:4 1:4");
}

TEST_F(SchedulerTest, AFullCachePreemptsTheYoungestWhichIsRecomputed) {
  add(10, 0), add(10, 1), add(10, 2);
  std::string seen;
  for (int i = 0; i < 40 && scheduler.preemptions() == 0; ++i) seen = pass();
  EXPECT_EQ(scheduler.preemptions(), 1);
  EXPECT_NE(seen.find("0:"), std::string::npos);  // the oldest still runs
  for (const auto& state : states) state->cancelled = state->number == 0;
  EXPECT_NE(pass().find("1:"), std::string::npos);
}

TEST_F(SchedulerTest, CancelledSequencesFreeTheirBlocks) {
  add(8, 0), add(2, 1);
  pass();
  for (const auto& state : states) state->cancelled = true;
  EXPECT_EQ(pass(), "");
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(cache.free_blocks(), cache.num_blocks());
}

TEST_F(SchedulerTest, AForkSharesFullBlocksAndCopiesTheLast) {
  add(6, 0);
  const auto prompt = scheduler.schedule().at(0).sequence;
  prompt->computed = 6;
  Sequence completion = *prompt;
  completion.forked = true;
  completion.tokens.push_back(1);
  const int64_t free = cache.free_blocks();
  scheduler.fork(prompt, completion);
  EXPECT_EQ(cache.free_blocks(), free - 1);  // two blocks, one of them shared
  scheduler.finish(prompt);
  EXPECT_EQ(cache.free_blocks(), free);  // the shared block stays, the prompt's last block is freed
  EXPECT_EQ(pass(), "0:1");
}

TEST_F(SchedulerTest, LookaheadTakesFreeBlocksOnlyWithOneBoundForAll) {
  add(3, 0), add(6, 1);
  pass();
  std::vector<Scheduler::ScheduledSequence> parts = scheduler.schedule();  // of 4 and 7 tokens, in 3 of 8 blocks
  parts[0].num_lookahead = 2, parts[1].num_lookahead = 9;
  EXPECT_EQ(scheduler.reserve_lookahead(parts), 9);
  EXPECT_EQ(parts[0].num_lookahead, 2);
  EXPECT_EQ(parts[1].num_lookahead, 9);
  EXPECT_EQ(parts[0].sequence->blocks.size(), 2);
  EXPECT_EQ(parts[1].sequence->blocks.size(), 4);
  EXPECT_EQ(scheduler.reserve_lookahead(parts), 9);  // already allocated
  parts[0].num_lookahead = 30, parts[1].num_lookahead = 9;
  EXPECT_EQ(scheduler.reserve_lookahead(parts), 12);
  EXPECT_EQ(parts[0].num_lookahead, 12);
  EXPECT_EQ(parts[1].num_lookahead, 9);
  EXPECT_EQ(cache.free_blocks(), 0);
  EXPECT_EQ(scheduler.preemptions(), 0);
}

TEST_F(SchedulerTest, ASequenceStartsWithItsCachedBlocks) {
  add(10, 0);
  EXPECT_EQ(pass(), "0:10");
  add(10, 0);  // while the first one runs
  EXPECT_EQ(pass(), "0:1 0:2");
  EXPECT_EQ(scheduler.cached_tokens(), 8);
  for (const auto& state : states) state->cancelled = true;
  EXPECT_EQ(pass(), "");
  EXPECT_EQ(cache.free_blocks(), cache.num_blocks());
  add(8, 0);  // unreferenced now; one of the two full blocks is recomputed, to sample from
  EXPECT_EQ(pass(), "0:4");
  EXPECT_EQ(scheduler.cached_tokens(), 12);
  add(8, 1);
  EXPECT_EQ(pass(), "0:1 1:8");
}

TEST_F(SchedulerTest, PromptLogProbsDoNotUseThePrefixCache) {
  add(10, 0);
  pass();
  add(10, 0);
  states.back()->request.prompt_logprobs = true;
  EXPECT_EQ(pass(), "0:1 0:9");  // as far as the budget goes
}

TEST_F(SchedulerTest, NothingIsFoundWithoutPrefixCachingOrAfterInvalidation) {
  add(6, 0);
  pass();
  cache.invalidate_prefix_cache();
  add(6, 0);
  EXPECT_EQ(pass(), "0:1 0:6");
  config.prefix_caching = false;
  add(6, 0);
  EXPECT_EQ(pass(), "0:1 0:1 0:6");
  EXPECT_EQ(scheduler.cached_tokens(), 0);
}

}  // namespace
}  // namespace hone
