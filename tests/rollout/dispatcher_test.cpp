// Which worker writes which request, in plain calls: nothing is lost, nothing counts twice, whatever workers do.
#include "rollout/dispatcher.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "core/log.h"
#include "core/rng.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

class DispatcherTest : public ::testing::Test {
 protected:
  void make(size_t workers, const Dispatcher::Limits& limits = {}) {
    std::vector<std::string> names;
    for (size_t i = 0; i < workers; ++i) names.push_back(concat("http://worker-", i));
    dispatcher = std::make_unique<Dispatcher>(names, limits);
    told.assign(workers, {});
    dropped.assign(workers, {});
  }
  std::shared_ptr<const WeightImage> weights(int64_t version) const {
    return std::make_shared<const WeightImage>(version, *device, bytes, frozen, nullptr);
  }
  // So many tokens in all.
  uint64_t ask(int64_t tokens, int64_t n = 1) {
    Request request{.prompt = {1}, .n = n, .id = 7, .sampling = {}};
    request.sampling.max_tokens = (tokens - 1) / n;
    const size_t place = answers.size();
    answers.emplace_back();
    return dispatcher->submit(std::move(request), [this, place](uint64_t id, std::vector<Reply> replies) {
      EXPECT_EQ(id, 7u);
      EXPECT_TRUE(answers[place].empty()) << "answered twice";
      answers[place] = std::move(replies);
    });
  }
  // What the worker is told now.
  Dispatcher::Work look(size_t worker, int64_t version = 0) {
    Dispatcher::Work work = dispatcher->next(worker, version, 0);
    for (const WorkerTurn::Ask& of : work.submit) told[worker].push_back(of.ticket);
    for (const uint64_t ticket : work.cancel) dropped[worker].push_back(ticket);
    return work;
  }
  // Replies that say who wrote them.
  static std::vector<Reply> replies_of(size_t worker, int64_t n = 1, int64_t version = 0) {
    Reply reply;
    reply.ids = {static_cast<int32_t>(worker)};
    reply.logp = reply.truncated_logp = reply.raw_logp = {-1};
    reply.versions = {version};
    return std::vector<Reply>(static_cast<size_t>(n), reply);
  }
  void finish(size_t worker, uint64_t ticket, int64_t n = 1, int64_t version = 0) {
    dispatcher->finished(worker, {ticket, replies_of(worker, n, version)});
  }
  size_t writer_of(size_t answer) const { return static_cast<size_t>(answers[answer].at(0).ids.at(0)); }

  std::unique_ptr<Device> device = devices().at("cpu")(0);
  std::shared_ptr<const Buffer> bytes = std::make_shared<const Buffer>(*device, 8);
  std::shared_ptr<const WeightBlocks> frozen =
      std::make_shared<const WeightBlocks>(*device, Tensor(bytes->data(), DType::u8, DeviceKind::cpu, {int64_t{0}}));
  std::unique_ptr<Dispatcher> dispatcher;
  std::vector<std::vector<Reply>> answers;           // by request
  std::vector<std::vector<uint64_t>> told, dropped;  // by worker
};

using Tickets = std::vector<uint64_t>;

TEST_F(DispatcherTest, ARequestGoesToTheWorkerWithTheFewestTokensToWrite) {
  make(3);
  dispatcher->publish(weights(0));
  for (size_t i = 0; i < 3; ++i) dispatcher->joined(i);
  const uint64_t longest = ask(100), middle = ask(50), shortest = ask(10), second = ask(30), third = ask(5), fourth = ask(100);
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
  EXPECT_EQ(metrics.at("workers/asked_again"), 1);
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
  for (const std::vector<Reply>& none : answers) EXPECT_TRUE(none.empty());
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
  const uint64_t first = dispatcher->submit({.prompt = {1}, .sampling = {}}, [&](uint64_t, std::vector<Reply>) {
    ++called;
    dispatcher->cancel(second);
    ask(10);
  });
  second = dispatcher->submit({.prompt = {1}, .sampling = {}}, [&](uint64_t, std::vector<Reply>) { called += 100; });
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
  make(3, {.shortest_usual = 0.02});
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
  EXPECT_EQ(dispatcher->metrics().at("workers/asked_twice"), 1);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(look(i).tokens, 0);
}

TEST_F(DispatcherTest, AHelperThatIsLostLeavesTheRequestWithItsFirstWriter) {
  make(2, {.shortest_usual = 0.02});
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

std::string failure_of(Dispatcher& dispatcher, double seconds) {
  std::string out;
  soon(
      [&] {
        try {
          dispatcher.step();
        } catch (const Error& error) {
          out = error.what();
        }
        return !out.empty();
      },
      seconds);
  return out;
}

TEST_F(DispatcherTest, WithoutAnyWorkerItGivesUpAndNamesWhatEachLastSaid) {
  make(3, {.timeout = 0.3});
  dispatcher->publish(weights(0));
  dispatcher->joined(0);
  EXPECT_FALSE(dispatcher->step()) << "where nothing is asked nobody is missed";
  ask(10);
  dispatcher->lost(0, "it broke");
  dispatcher->lost(1, "connection refused");
  const Stopwatch since;
  const std::string failure = failure_of(*dispatcher, 10);
  EXPECT_NE(failure.find("0.3 seconds"), std::string::npos) << failure;
  EXPECT_TRUE(failure.ends_with("; http://worker-0: it broke; http://worker-1: connection refused; http://worker-2: no answer yet")) << failure;
  EXPECT_GT(since.seconds(), 0.2);
  EXPECT_LT(since.seconds(), 3);
}

TEST_F(DispatcherTest, AWorkerThatIsThereIsWaitedFor) {
  make(1, {.timeout = 0.1});
  dispatcher->publish(weights(0));
  dispatcher->joined(0);
  const uint64_t one = ask(10);
  look(0);
  EXPECT_EQ(failure_of(*dispatcher, 0.5), "");
  finish(0, one);
  EXPECT_FALSE(dispatcher->step());
}

TEST_F(DispatcherTest, OneThatJoinsAndIsLostAgainAndAgainIsNoWorker) {
  make(1, {.timeout = 0.3});
  dispatcher->publish(weights(0));
  ask(10);
  const Stopwatch since;
  std::string failure;
  while (failure.empty() && since.seconds() < 10) {
    dispatcher->joined(0);
    look(0);
    dispatcher->lost(0, "it answers nonsense");
    failure = failure_of(*dispatcher, 0);
  }
  EXPECT_NE(failure.find("it answers nonsense"), std::string::npos);
  EXPECT_LT(since.seconds(), 3);
}

TEST_F(DispatcherTest, OneThatFinishesSomethingIsAWorkerHoweverOftenItIsLost) {
  make(1, {.timeout = 0.3});
  dispatcher->publish(weights(0));
  ask(10);
  const Stopwatch since;
  while (since.seconds() < 0.6) {
    const uint64_t ticket = ask(10);
    dispatcher->joined(0);
    look(0);
    finish(0, ticket);
    dispatcher->lost(0, "it broke");
    ASSERT_TRUE(dispatcher->step());
  }
}

TEST_F(DispatcherTest, OneThatIsLostInTheMiddleOfALongReplyIsWaitedFor) {
  make(1, {.timeout = 0.3});
  dispatcher->publish(weights(0));
  ask(10);
  dispatcher->joined(0);
  look(0);
  ASSERT_EQ(failure_of(*dispatcher, 0.4), "");
  dispatcher->moved(0);
  dispatcher->lost(0, "it broke");
  const Stopwatch since;
  EXPECT_NE(failure_of(*dispatcher, 10), "");
  EXPECT_GT(since.seconds(), 0.2);
}

TEST_F(DispatcherTest, StoppingWakesEverybody) {
  make(1);
  std::atomic<bool> stopped = false;
  std::jthread worker([&] { stopped = dispatcher->next(0, -1, 20).stopping; });
  dispatcher->stop();
  EXPECT_TRUE(soon([&] { return stopped.load(); }));
}

TEST_F(DispatcherTest, SettlesOnceEachWorkerHasJoinedOrFailedTo) {
  make(2);
  std::atomic<bool> settled = false;
  std::jthread asker([&] {
    dispatcher->settle(20);
    settled = true;
  });
  dispatcher->joined(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(settled);
  dispatcher->lost(1, "no such host");
  EXPECT_TRUE(soon([&] { return settled.load(); }));
}

// A worker as a random walk: joins, takes what it is told, finishes some of it, is lost, and now and then answers what it was asked before that.
TEST_F(DispatcherTest, WhateverWorkersDoEachRequestIsAnsweredOnce) {
  log::set_level(log::Level::error);
  for (uint64_t schedule = 0; schedule < 200; ++schedule) {
    SCOPED_TRACE(schedule);
    Rng random(31, schedule);
    const size_t num_workers = 1 + random.below(4);
    make(num_workers, {.tokens_at_once = 20 + static_cast<int64_t>(random.below(100)), .timeout = 1000, .shortest_usual = schedule % 2 ? 0 : 2.0});
    answers.clear();
    int64_t version = 0;
    dispatcher->publish(weights(version));
    struct Walker {
      bool alive = false;
      int64_t version = -1;
      std::set<uint64_t> has;
      std::vector<uint64_t> had;
    };
    std::vector<Walker> walkers(num_workers);
    std::map<uint64_t, int64_t> n_of;
    std::map<uint64_t, size_t> answer_of;
    std::set<uint64_t> cancelled;
    const auto act = [&](size_t i, uint64_t choice) {
      Walker& walker = walkers[i];
      if (!walker.alive) {
        if (choice < 50) dispatcher->joined(i), walker = {.alive = true, .version = -1, .has = {}, .had = std::move(walker.had)};
        return;
      }
      if (choice < 4) {
        dispatcher->lost(i, "chance");
        walker.alive = false;
        walker.had.insert(walker.had.end(), walker.has.begin(), walker.has.end());
        walker.has.clear();
      } else if (choice < 60) {
        const Dispatcher::Work work = look(i, walker.version);
        if (work.weights) {
          walker.version = work.weights->version();
          return;
        }
        for (const WorkerTurn::Ask& of : work.submit) EXPECT_TRUE(walker.has.insert(of.ticket).second) << "told twice";
        for (const uint64_t ticket : work.cancel) walker.has.erase(ticket);  // if it has not finished it meanwhile
        EXPECT_EQ(work.tokens > 0, !walker.has.empty());
      } else if (choice < 65 && !walker.had.empty()) {
        const uint64_t late = walker.had[random.below(walker.had.size())];
        if (!walker.has.contains(late)) finish(i, late, n_of.at(late), walker.version);
      } else if (!walker.has.empty()) {
        const uint64_t ticket = *std::next(walker.has.begin(), static_cast<std::ptrdiff_t>(random.below(walker.has.size())));
        walker.has.erase(ticket);
        finish(i, ticket, n_of.at(ticket), walker.version);
      }
    };
    for (int turn = 0; turn < 400; ++turn) {
      const uint64_t choice = random.below(100);
      if (choice < 15) {
        const auto n = static_cast<int64_t>(1 + random.below(3));
        const uint64_t ticket = ask(1 + n * static_cast<int64_t>(1 + random.below(15)), n);
        n_of[ticket] = n, answer_of[ticket] = answers.size() - 1;
      } else if (choice < 18 && !n_of.empty()) {
        const uint64_t ticket = std::next(n_of.begin(), static_cast<std::ptrdiff_t>(random.below(n_of.size())))->first;
        if (answers[answer_of.at(ticket)].empty()) cancelled.insert(ticket);
        dispatcher->cancel(ticket);
      } else if (choice < 20) {
        dispatcher->publish(weights(++version));
      } else if (choice < 30) {
        // Only where something is whole or nothing is left: step() would wait.
        if (turn % 20 == 0) dispatcher->step();
      } else {
        act(random.below(num_workers), random.below(100));
      }
    }
    for (size_t i = 0; i < num_workers; ++i)
      if (!walkers[i].alive) act(i, 0);
    bool left = true;
    for (int turn = 0; turn < 10000 && left; ++turn) {
      for (size_t i = 0; i < num_workers; ++i) act(i, turn % 2 ? 50 : 99);
      if (turn % 10 == 9) left = dispatcher->step();
    }
    ASSERT_FALSE(left);
    for (const auto& [ticket, n] : n_of)
      ASSERT_EQ(answers[answer_of.at(ticket)].size(), cancelled.contains(ticket) ? 0u : static_cast<size_t>(n)) << ticket;
    for (size_t i = 0; i < num_workers; ++i) EXPECT_EQ(look(i, walkers[i].version).tokens, 0);
  }
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hone::test
