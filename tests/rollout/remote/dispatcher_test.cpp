// Which worker writes which request: nothing is lost, nothing counts twice.
#include "rollout/remote/dispatcher.h"

#include "core/base/stopwatch.h"
#include "tests/rollout/remote/dispatcher_fixture.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

using DispatcherTest = DispatcherFixture;
using Tickets = std::vector<uint64_t>;

TEST_F(DispatcherTest, ARequestGoesToTheWorkerWithTheFewestTokensToWrite) {
  make(3);
  dispatcher->publish(weights(0));
  for (size_t i = 0; i < 3; ++i) dispatcher->joined(i);
  const uint64_t longest = ask(100), middle = ask(50), shortest = ask(10), second = ask(30), third = ask(5),
                 fourth = ask(100);
  for (size_t i = 0; i < 3; ++i) look(i);
  EXPECT_EQ(told[0], Tickets{longest});
  EXPECT_EQ(told[1], (Tickets{middle}));
  EXPECT_EQ(told[2], (Tickets{shortest, second, third, fourth}));
  for (const uint64_t ticket : {fourth, second, shortest, third}) finish(2, ticket);
  const uint64_t next = ask(5);
  look(2);
  EXPECT_EQ(told[2].back(), next) << "what was written weighs no more";
}

TEST_F(DispatcherTest, TheRepliesOfARequestAllCount) {
  make(2);
  dispatcher->publish(weights(0));
  dispatcher->joined(0), dispatcher->joined(1);
  ask(81, 8);
  const uint64_t one = ask(40), two = ask(40);
  look(0), look(1);
  EXPECT_EQ(told[1], (Tickets{one, two}));
}

TEST_F(DispatcherTest, AWorkerHasNoMoreTokensThanItsCacheAndTheRestWaits) {
  make(2, {.tokens_at_once = 100});
  dispatcher->publish(weights(0));
  dispatcher->joined(0), dispatcher->joined(1);
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 8; ++i) tickets.push_back(ask(40));
  look(0), look(1);
  EXPECT_EQ(told[0].size() + told[1].size(), 4u);
  EXPECT_EQ(dispatcher->metrics().at("queue/requests"), 4);
  finish(0, told[0][0]);
  look(0), look(1);
  EXPECT_EQ(told[0], (Tickets{tickets[0], tickets[2], tickets[4]})) << "the oldest that waits is next";
  EXPECT_EQ(told[1].size(), 2u);
  const uint64_t vast = ask(1000);
  uint64_t longest = 0;
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < 2; ++i)
      for (const uint64_t ticket : std::exchange(told[i], {})) finish(i, ticket), more = true, longest = ticket;
    dispatcher->step();
    look(0), look(1);
  }
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(longest, vast) << "one longer than that is written by itself";
}

TEST_F(DispatcherTest, WhatALostWorkerHadIsWrittenByOthersAndCountsOnce) {
  make(2);
  dispatcher->publish(weights(0));
  dispatcher->joined(0);
  const uint64_t one = ask(10, 2), two = ask(10);
  look(0);
  finish(0, one, 2);  // not called back yet
  dispatcher->joined(1);
  dispatcher->lost(0, "it broke");
  look(1);
  EXPECT_EQ(told[1], Tickets{two});
  finish(0, two);  // it lived after all
  EXPECT_TRUE(dispatcher->step());
  EXPECT_TRUE(answers[1].empty()) << "nobody asks it any more";
  finish(1, two);
  finish(1, two);
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(answers[0].size(), 2u);
  EXPECT_EQ(writer_of(0), 0u);
  EXPECT_EQ(writer_of(1), 1u);
  finish(1, two);
  EXPECT_FALSE(dispatcher->step());
  const Metrics metrics = dispatcher->metrics();
  EXPECT_EQ(metrics.at("workers/lost"), 1);
  EXPECT_EQ(metrics.at("workers/retried"), 1);
  EXPECT_EQ(metrics.at("workers/alive"), 1);
  EXPECT_EQ(metrics.at("rollout/generated_tokens"), 3);
  EXPECT_EQ(dispatcher->metrics().count("workers/lost"), 0u);
}

TEST_F(DispatcherTest, AWorkerThatComesBackIsToldAgainWhatIsStillAsked) {
  make(1);
  dispatcher->publish(weights(0));
  dispatcher->joined(0);
  const uint64_t one = ask(10), two = ask(10);
  look(0);
  dispatcher->lost(0, "it broke");
  EXPECT_TRUE(look(0, -1).submit.empty());
  dispatcher->joined(0);
  EXPECT_TRUE(look(0, -1).submit.empty()) << "it has no weights";
  look(0);
  EXPECT_EQ(told[0], (Tickets{one, two, one, two}));
  EXPECT_TRUE(dropped[0].empty());
  finish(0, one), finish(0, two);
  EXPECT_FALSE(dispatcher->step());
}

TEST_F(DispatcherTest, OneThatJoinsHasItsShareOfWhatNobodyHasBeenTold) {
  make(2);
  dispatcher->publish(weights(0));
  dispatcher->joined(0);
  const uint64_t begun = ask(10);
  look(0);
  for (int i = 0; i < 4; ++i) ask(10);
  dispatcher->joined(1);
  look(0), look(1);
  EXPECT_EQ(told[0].front(), begun);
  EXPECT_EQ(told[0].size() + told[1].size(), 5u);
  EXPECT_GE(told[1].size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    for (const uint64_t ticket : told[i]) finish(i, ticket);
  EXPECT_FALSE(dispatcher->step());
}

TEST_F(DispatcherTest, WhatIsCancelledIsNotAnsweredAndItsWriterIsToldOnce) {
  make(1, {.tokens_at_once = 30});
  dispatcher->publish(weights(0));
  dispatcher->joined(0);
  const uint64_t begun = ask(10), whole = ask(10);
  look(0);
  const uint64_t untold = ask(10), waiting = ask(10);
  finish(0, whole);
  for (const uint64_t ticket : {begun, whole, untold, waiting}) dispatcher->cancel(ticket);
  look(0), look(0);
  EXPECT_EQ(dropped[0], Tickets{begun});
  EXPECT_EQ(told[0], (Tickets{begun, whole})) << "what nobody was told of never is";
  finish(0, begun);  // it was on its way
  EXPECT_FALSE(dispatcher->step());
  for (const std::vector<CompletionOutput>& none : answers) EXPECT_TRUE(none.empty());
  EXPECT_EQ(look(0).tokens, 0);
  dispatcher->cancel(begun);
  const uint64_t next = ask(25);
  look(0);
  EXPECT_EQ(told[0].back(), next) << "its room is free";
}

TEST_F(DispatcherTest, AnAnswerMayCancelAndAskOthers) {
  make(1);
  dispatcher->publish(weights(0));
  dispatcher->joined(0);
  int called = 0;
  uint64_t second = 0;
  const uint64_t first =
      dispatcher->submit({.prompt = {1}, .sampling = {}}, [&](uint64_t, std::vector<CompletionOutput>) {
        ++called;
        dispatcher->cancel(second);
        ask(10);
      });
  second = dispatcher->submit({.prompt = {1}, .sampling = {}},
                              [&](uint64_t, std::vector<CompletionOutput>) { called += 100; });
  look(0);
  finish(0, first), finish(0, second);
  EXPECT_TRUE(dispatcher->step());
  EXPECT_EQ(called, 1);
  look(0);
  finish(0, told[0].back());
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(answers[0].size(), 1u);
}

TEST_F(DispatcherTest, ASlowWorkerIsHelpedByAnIdleOneOnceAndTheFirstAnswerCounts) {
  make(3, {.min_typical_seconds = 0.02});
  dispatcher->publish(weights(0));
  for (size_t i = 0; i < 3; ++i) dispatcher->joined(i);
  const uint64_t slow = ask(10), quick = ask(10);
  look(0), look(1);
  finish(1, quick);
  EXPECT_TRUE(look(1).submit.empty()) << "too early to tell";
  ASSERT_TRUE(soon([&] { return !look(2).submit.empty(); }));
  EXPECT_EQ(told[2], Tickets{slow});
  for (const Stopwatch since; since.seconds() < 0.3;) ASSERT_TRUE(look(1).submit.empty()) << "one helper is enough";
  finish(2, slow);
  look(0);
  EXPECT_EQ(dropped[0], Tickets{slow});
  finish(0, slow);
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(writer_of(0), 2u);
  EXPECT_EQ(dispatcher->metrics().at("workers/duplicated"), 1);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(look(i).tokens, 0);
}

TEST_F(DispatcherTest, AHelperThatIsLostLeavesTheRequestWithItsFirstWriter) {
  make(2, {.min_typical_seconds = 0.02});
  dispatcher->publish(weights(0));
  dispatcher->joined(0), dispatcher->joined(1);
  const uint64_t slow = ask(10), quick = ask(10);
  look(0), look(1);
  finish(1, quick);
  ASSERT_TRUE(soon([&] { return !look(1).submit.empty(); }));
  dispatcher->lost(1, "it broke");
  EXPECT_EQ(dispatcher->metrics().at("queue/requests"), 0);
  finish(0, slow);
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(writer_of(0), 0u);
}

TEST_F(DispatcherTest, NewWeightsGoBeforeWhatIsAskedOfThem) {
  make(1);
  dispatcher->joined(0);
  dispatcher->publish(weights(4));
  const uint64_t one = ask(10);
  const Dispatcher::Work first = look(0, -1);
  ASSERT_TRUE(first.weights);
  EXPECT_EQ(first.weights->version(), 4);
  EXPECT_TRUE(first.submit.empty() && first.cancel.empty());
  EXPECT_EQ(look(0, 4).submit.size(), 1u);
  dispatcher->publish(weights(5));
  const uint64_t two = ask(10);
  EXPECT_EQ(look(0, 4).weights->version(), 5);
  EXPECT_FALSE(look(0, 5).weights);
  EXPECT_EQ(told[0], (Tickets{one, two}));
}

TEST_F(DispatcherTest, TokensOfVersionsThatWereNotAskedForAreRefused) {
  make(1);
  dispatcher->publish(weights(4));
  dispatcher->joined(0);
  const uint64_t old = ask(10);
  dispatcher->publish(weights(5));
  const uint64_t ticket = ask(10);
  look(0, 5);
  const auto refused = [&](uint64_t of, int64_t version, const char* what) {
    try {
      finish(0, of, 1, version);
      ADD_FAILURE() << "version " << version << " of request " << of << " is taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  refused(ticket, 4, "a token was drawn by version 4; version 5 to 5 were asked for");
  refused(ticket, 6, "version 6");
  refused(old, 3, "version 3; version 4 to 5");
  refused(old, -1, "version -1");
  EXPECT_THROW(finish(0, ticket, 0, 5), Error);
  EXPECT_THROW(finish(0, ticket, 2, 5), Error);
  finish(0, 12345, 1, 99);  // of no request: dropped
  finish(0, old, 1, 4), finish(0, ticket, 1, 5);
  EXPECT_FALSE(dispatcher->step());
  EXPECT_EQ(answers[0].size() + answers[1].size(), 2u);
}

}  // namespace
}  // namespace hone::test
