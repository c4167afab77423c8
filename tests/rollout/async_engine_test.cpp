// AsyncEngine: its bound on pending completions, and a failed engine.
#include "rollout/async_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "tests/rollout/tiny_engine.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

struct Listener : CompletionListener {
  void on_token(size_t, int64_t, const CompletionOutput&) override { ++tokens; }
  void on_finish(size_t, std::vector<CompletionOutput>) override { ++finished; }
  void on_failure(const std::string& why) override {
    reason = why;
    ++failures;
  }
  std::string reason;  // once there are failures
  std::atomic<int> tokens = 0, finished = 0, failures = 0;
};

class AsyncEngineTest : public TinyEngineTest {
 protected:
  static GenerationRequest request(uint64_t id) {
    return {prompt(id, 5), 2, id, {.max_tokens = 6, .ignore_eos = true, .stop = {}, .stop_ids = {}}};
  }
  AsyncEngineTest() : engine(context, *model, nullptr, {}) {}
  Engine engine;
};

TEST_F(AsyncEngineTest, BoundsPendingCompletions) {
  const auto listener = std::make_shared<Listener>();
  AsyncEngine loop(engine, 3);
  EXPECT_EQ(loop.submit({request(1), request(2)}, listener, false), 0u);
  EXPECT_NE(loop.submit({request(1)}, listener, true), 0u);
  ASSERT_TRUE(soon([&] { return listener->finished == 1; }));
  EXPECT_EQ(listener->tokens, 12);
  EXPECT_TRUE(soon([&] { return loop.state().pending_completions == 0 && loop.state().requests_finished == 1; }));
}

TEST_F(AsyncEngineTest, AFailedEngineNotifiesEachListenerOnceAndRejectsRequests) {
  std::ranges::fill(model->lm_head().value.as<float>(), std::nanf(""));
  const auto one = std::make_shared<Listener>(), two = std::make_shared<Listener>();
  AsyncEngine loop(engine, 100);
  loop.submit({request(1)}, one, false);
  try {
    loop.submit({request(2), request(3)}, two, true);
    EXPECT_TRUE(soon([&] { return two->failures == 1; }));
  } catch (const Error&) {  // it had failed by then
  }
  ASSERT_TRUE(soon([&] { return one->failures == 1; }));
  EXPECT_NE(one->reason.find("NaN"), std::string::npos) << one->reason;
  EXPECT_EQ(loop.state().pending_completions, 0);
  EXPECT_EQ(loop.state().failure, one->reason);
  EXPECT_THROW(loop.submit({request(4)}, one, false), Error);
  EXPECT_EQ(one->failures, 1);
  EXPECT_EQ(one->finished + two->finished, 0);
}

}  // namespace
}  // namespace hone::test
