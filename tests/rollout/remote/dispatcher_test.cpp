// Dispatcher: the assignment of requests to workers; no request is lost or counted twice.
#include "rollout/remote/dispatcher.h"

#include "core/base/stopwatch.h"
#include "tests/rollout/remote/dispatcher_fixture.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

using DispatcherTest = DispatcherFixture;
using Tickets = std::vector<uint64_t>;

TEST_F(DispatcherTest, ARequestGoesToTheWorkerWithTheFewestTokens) {
  make(3);
  dispatcher->set_weights(weights(0));
  for (size_t i = 0; i < 3; ++i) dispatcher->mark_joined(i);
  const uint64_t longest = submit(100), middle = submit(50), shortest = submit(10), second = submit(30),
                 third = submit(5), fourth = submit(100);
  for (size_t i = 0; i < 3; ++i) poll_worker(i);
  EXPECT_EQ(sent[0], Tickets{longest});
  EXPECT_EQ(sent[1], (Tickets{middle}));
  EXPECT_EQ(sent[2], (Tickets{shortest, second, third, fourth}));
  for (const uint64_t ticket : {fourth, second, shortest, third}) finish(2, ticket);
  const uint64_t next = submit(5);
  poll_worker(2);
  EXPECT_EQ(sent[2].back(), next) << "what was written weighs no more";
}

TEST_F(DispatcherTest, AllCompletionsOfARequestCount) {
  make(2);
  dispatcher->set_weights(weights(0));
  dispatcher->mark_joined(0), dispatcher->mark_joined(1);
  submit(81, 8);
  const uint64_t one = submit(40), two = submit(40);
  poll_worker(0), poll_worker(1);
  EXPECT_EQ(sent[1], (Tickets{one, two}));
}

TEST_F(DispatcherTest, AWorkerHasNoMoreTokensThanItsCacheAndTheRestWaits) {
  make(2, {.max_tokens_per_worker = 100});
  dispatcher->set_weights(weights(0));
  dispatcher->mark_joined(0), dispatcher->mark_joined(1);
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 8; ++i) tickets.push_back(submit(40));
  poll_worker(0), poll_worker(1);
  EXPECT_EQ(sent[0].size() + sent[1].size(), 4u);
  EXPECT_EQ(dispatcher->metrics().at("queue/requests"), 4);
  finish(0, sent[0][0]);
  poll_worker(0), poll_worker(1);
  EXPECT_EQ(sent[0], (Tickets{tickets[0], tickets[2], tickets[4]})) << "the oldest that waits is next";
  EXPECT_EQ(sent[1].size(), 2u);
  const uint64_t vast = submit(1000);
  uint64_t longest = 0;
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < 2; ++i)
      for (const uint64_t ticket : std::exchange(sent[i], {})) finish(i, ticket), more = true, longest = ticket;
    dispatcher->step();
    poll_worker(0), poll_worker(1);
  }
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(longest, vast) << "one longer than that is written by itself";
}

TEST_F(DispatcherTest, RequestsOfALostWorkerAreReassignedAndCountOnce) {
  make(2);
  dispatcher->set_weights(weights(0));
  dispatcher->mark_joined(0);
  const uint64_t one = submit(10, 2), two = submit(10);
  poll_worker(0);
  finish(0, one, 2);  // on_finish is not called yet
  dispatcher->mark_joined(1);
  dispatcher->mark_lost(0, "it broke");
  poll_worker(1);
  EXPECT_EQ(sent[1], Tickets{two});
  finish(0, two);  // a late result of the lost worker
  EXPECT_TRUE(dispatcher->step());
  EXPECT_TRUE(results[1].empty()) << "nobody asks it any more";
  finish(1, two);
  finish(1, two);
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(results[0].size(), 2u);
  EXPECT_EQ(worker_of(0), 0u);
  EXPECT_EQ(worker_of(1), 1u);
  finish(1, two);
  EXPECT_FALSE(dispatcher->step());
  const Metrics metrics = dispatcher->metrics();
  EXPECT_EQ(metrics.at("workers/lost"), 1);
  EXPECT_EQ(metrics.at("workers/retried"), 1);
  EXPECT_EQ(metrics.at("workers/alive"), 1);
  EXPECT_EQ(metrics.at("rollout/generated_tokens"), 3);
  EXPECT_EQ(dispatcher->metrics().count("workers/lost"), 0u);
}

TEST_F(DispatcherTest, AWorkerThatRejoinsGetsPendingRequestsAgain) {
  make(1);
  dispatcher->set_weights(weights(0));
  dispatcher->mark_joined(0);
  const uint64_t one = submit(10), two = submit(10);
  poll_worker(0);
  dispatcher->mark_lost(0, "it broke");
  EXPECT_TRUE(poll_worker(0, -1).submit.empty());
  dispatcher->mark_joined(0);
  EXPECT_TRUE(poll_worker(0, -1).submit.empty()) << "it has no weights";
  poll_worker(0);
  EXPECT_EQ(sent[0], (Tickets{one, two, one, two}));
  EXPECT_TRUE(cancelled[0].empty());
  finish(0, one), finish(0, two);
  EXPECT_FALSE(dispatcher->step());
}

TEST_F(DispatcherTest, AJoiningWorkerGetsAShareOfUnsentRequests) {
  make(2);
  dispatcher->set_weights(weights(0));
  dispatcher->mark_joined(0);
  const uint64_t begun = submit(10);
  poll_worker(0);
  for (int i = 0; i < 4; ++i) submit(10);
  dispatcher->mark_joined(1);
  poll_worker(0), poll_worker(1);
  EXPECT_EQ(sent[0].front(), begun);
  EXPECT_EQ(sent[0].size() + sent[1].size(), 5u);
  EXPECT_GE(sent[1].size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    for (const uint64_t ticket : sent[i]) finish(i, ticket);
  EXPECT_FALSE(dispatcher->step());
}

TEST_F(DispatcherTest, ACancelledRequestHasNoResultAndIsCancelledOnItsWorkerOnce) {
  make(1, {.max_tokens_per_worker = 30});
  dispatcher->set_weights(weights(0));
  dispatcher->mark_joined(0);
  const uint64_t begun = submit(10), finished = submit(10);
  poll_worker(0);
  const uint64_t unsent = submit(10), waiting = submit(10);
  finish(0, finished);
  for (const uint64_t ticket : {begun, finished, unsent, waiting}) dispatcher->cancel(ticket);
  poll_worker(0), poll_worker(0);
  EXPECT_EQ(cancelled[0], Tickets{begun});
  EXPECT_EQ(sent[0], (Tickets{begun, finished})) << "unsent requests are never sent";
  finish(0, begun);  // the result was in transit
  EXPECT_FALSE(dispatcher->step());
  for (const std::vector<CompletionOutput>& none : results) EXPECT_TRUE(none.empty());
  EXPECT_EQ(poll_worker(0).tokens, 0);
  dispatcher->cancel(begun);
  const uint64_t next = submit(25);
  poll_worker(0);
  EXPECT_EQ(sent[0].back(), next) << "its room is free";
}

TEST_F(DispatcherTest, OnFinishMayCancelAndSubmit) {
  make(1);
  dispatcher->set_weights(weights(0));
  dispatcher->mark_joined(0);
  int called = 0;
  uint64_t second = 0;
  const uint64_t first =
      dispatcher->submit({.prompt = {1}, .sampling = {}}, [&](uint64_t, std::vector<CompletionOutput>) {
        ++called;
        dispatcher->cancel(second);
        submit(10);
      });
  second = dispatcher->submit({.prompt = {1}, .sampling = {}},
                              [&](uint64_t, std::vector<CompletionOutput>) { called += 100; });
  poll_worker(0);
  finish(0, first), finish(0, second);
  EXPECT_TRUE(dispatcher->step());
  EXPECT_EQ(called, 1);
  poll_worker(0);
  finish(0, sent[0].back());
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(results[0].size(), 1u);
}

TEST_F(DispatcherTest, ASlowRequestIsDuplicatedOnceAndTheFirstResultCounts) {
  make(3, {.min_typical_seconds = 0.02});
  dispatcher->set_weights(weights(0));
  for (size_t i = 0; i < 3; ++i) dispatcher->mark_joined(i);
  const uint64_t slow = submit(10), quick = submit(10);
  poll_worker(0), poll_worker(1);
  finish(1, quick);
  EXPECT_TRUE(poll_worker(1).submit.empty()) << "too early to tell";
  ASSERT_TRUE(soon([&] { return !poll_worker(2).submit.empty(); }));
  EXPECT_EQ(sent[2], Tickets{slow});
  for (const Stopwatch since; since.seconds() < 0.3;)
    ASSERT_TRUE(poll_worker(1).submit.empty()) << "one helper is enough";
  finish(2, slow);
  poll_worker(0);
  EXPECT_EQ(cancelled[0], Tickets{slow});
  finish(0, slow);
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(worker_of(0), 2u);
  EXPECT_EQ(dispatcher->metrics().at("workers/duplicated"), 1);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(poll_worker(i).tokens, 0);
}

TEST_F(DispatcherTest, ALostDuplicateLeavesTheRequestWithItsFirstWorker) {
  make(2, {.min_typical_seconds = 0.02});
  dispatcher->set_weights(weights(0));
  dispatcher->mark_joined(0), dispatcher->mark_joined(1);
  const uint64_t slow = submit(10), quick = submit(10);
  poll_worker(0), poll_worker(1);
  finish(1, quick);
  ASSERT_TRUE(soon([&] { return !poll_worker(1).submit.empty(); }));
  dispatcher->mark_lost(1, "it broke");
  EXPECT_EQ(dispatcher->metrics().at("queue/requests"), 0);
  finish(0, slow);
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(worker_of(0), 0u);
}

TEST_F(DispatcherTest, NewWeightsAreSentBeforeRequestsThatNeedThem) {
  make(1);
  dispatcher->mark_joined(0);
  dispatcher->set_weights(weights(4));
  const uint64_t one = submit(10);
  const Dispatcher::Work first = poll_worker(0, -1);
  ASSERT_TRUE(first.weights);
  EXPECT_EQ(first.weights->version(), 4);
  EXPECT_TRUE(first.submit.empty() && first.cancel.empty());
  EXPECT_EQ(poll_worker(0, 4).submit.size(), 1u);
  dispatcher->set_weights(weights(5));
  const uint64_t two = submit(10);
  EXPECT_EQ(poll_worker(0, 4).weights->version(), 5);
  EXPECT_FALSE(poll_worker(0, 5).weights);
  EXPECT_EQ(sent[0], (Tickets{one, two}));
}

TEST_F(DispatcherTest, TokensOfImpossibleVersionsAreErrors) {
  make(1);
  dispatcher->set_weights(weights(4));
  dispatcher->mark_joined(0);
  const uint64_t old = submit(10);
  dispatcher->set_weights(weights(5));
  const uint64_t ticket = submit(10);
  poll_worker(0, 5);
  const auto refused = [&](uint64_t of, int64_t version, const char* what) {
    try {
      finish(0, of, 1, version);
      ADD_FAILURE() << "version " << version << " of request " << of << " is taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  refused(ticket, 4, "a token was sampled by version 4; versions 5 to 5 were possible");
  refused(ticket, 6, "version 6");
  refused(old, 3, "version 3; versions 4 to 5");
  refused(old, -1, "version -1");
  EXPECT_THROW(finish(0, ticket, 0, 5), Error);
  EXPECT_THROW(finish(0, ticket, 2, 5), Error);
  finish(0, 12345, 1, 99);  // an unknown request: ignored
  finish(0, old, 1, 4), finish(0, ticket, 1, 5);
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(results[0].size() + results[1].size(), 2u);
}

}  // namespace
}  // namespace hone::test
