// Dispatcher: how long it waits for workers, and that each request finishes once whatever they do.
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "core/base/log.h"
#include "core/base/rng.h"
#include "core/base/stopwatch.h"
#include "tests/rollout/remote/dispatcher_fixture.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

using DispatcherTest = DispatcherFixture;

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

TEST_F(DispatcherTest, WithoutAnyWorkerItThrowsWithTheReasonOfEach) {
  make(3, {.timeout = 0.3});
  dispatcher->set_weights(weights(0));
  dispatcher->mark_joined(0);
  EXPECT_FALSE(dispatcher->step()) << "without requests no worker is missed";
  submit(10);
  dispatcher->mark_lost(0, "it broke");
  dispatcher->mark_lost(1, "connection refused");
  const Stopwatch since;
  const std::string failure = failure_of(*dispatcher, 10);
  EXPECT_NE(failure.find("0.3 seconds"), std::string::npos) << failure;
  EXPECT_TRUE(failure.ends_with(
      "; http://worker-0: it broke; http://worker-1: connection refused; http://worker-2: no response yet"))
      << failure;
  EXPECT_GT(since.seconds(), 0.2);
  EXPECT_LT(since.seconds(), 3);
}

TEST_F(DispatcherTest, AnAliveWorkerIsWaitedFor) {
  make(1, {.timeout = 0.1});
  dispatcher->set_weights(weights(0));
  dispatcher->mark_joined(0);
  const uint64_t one = submit(10);
  poll_worker(0);
  EXPECT_EQ(failure_of(*dispatcher, 0.5), "");
  finish(0, one);
  EXPECT_FALSE(dispatcher->step());
}

TEST_F(DispatcherTest, AWorkerThatIsLostAgainAndAgainDoesNotPreventTheTimeout) {
  make(1, {.timeout = 0.3});
  dispatcher->set_weights(weights(0));
  submit(10);
  const Stopwatch since;
  std::string failure;
  while (failure.empty() && since.seconds() < 10) {
    dispatcher->mark_joined(0);
    poll_worker(0);
    dispatcher->mark_lost(0, "it sends nonsense");
    failure = failure_of(*dispatcher, 0);
  }
  EXPECT_NE(failure.find("it sends nonsense"), std::string::npos);
  EXPECT_LT(since.seconds(), 3);
}

TEST_F(DispatcherTest, AWorkerThatFinishesRequestsPreventsTheTimeout) {
  make(1, {.timeout = 0.3});
  dispatcher->set_weights(weights(0));
  submit(10);
  const Stopwatch since;
  while (since.seconds() < 0.6) {
    const uint64_t ticket = submit(10);
    dispatcher->mark_joined(0);
    poll_worker(0);
    finish(0, ticket);
    dispatcher->mark_lost(0, "it broke");
    ASSERT_TRUE(dispatcher->step());
  }
}

TEST_F(DispatcherTest, AWorkerLostInALongCompletionIsWaitedFor) {
  make(1, {.timeout = 0.3});
  dispatcher->set_weights(weights(0));
  submit(10);
  dispatcher->mark_joined(0);
  poll_worker(0);
  ASSERT_EQ(failure_of(*dispatcher, 0.4), "");
  dispatcher->record_progress(0);
  dispatcher->mark_lost(0, "it broke");
  const Stopwatch since;
  EXPECT_NE(failure_of(*dispatcher, 10), "");
  EXPECT_GT(since.seconds(), 0.2);
}

TEST_F(DispatcherTest, StoppingWakesAllThreads) {
  make(1);
  std::atomic<bool> stopped = false;
  std::jthread worker([&] { stopped = dispatcher->next_work(0, -1, 20).stopping; });
  dispatcher->stop();
  EXPECT_TRUE(soon([&] { return stopped.load(); }));
}

TEST_F(DispatcherTest, WaitsUntilEachWorkerHasJoinedOrFailedTo) {
  make(2);
  std::atomic<bool> settled = false;
  std::jthread asker([&] {
    dispatcher->wait_until_joined(20);
    settled = true;
  });
  dispatcher->mark_joined(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(settled);
  dispatcher->mark_lost(1, "no such host");
  EXPECT_TRUE(soon([&] { return settled.load(); }));
}

// A worker as a random walk: it joins, takes requests, finishes some, is lost, and sometimes sends results of an
// earlier session.
TEST_F(DispatcherTest, WhateverWorkersDoEachRequestFinishesOnce) {
  log::set_level(log::Level::error);
  for (uint64_t schedule = 0; schedule < 200; ++schedule) {
    SCOPED_TRACE(schedule);
    Rng random(31, schedule);
    const size_t num_workers = 1 + random.below(4);
    make(num_workers, {.max_tokens_per_worker = 20 + static_cast<int64_t>(random.below(100)),
                       .timeout = 1000,
                       .min_typical_seconds = schedule % 2 ? 0 : 2.0});
    results.clear();
    int64_t version = 0;
    dispatcher->set_weights(weights(version));
    struct Walker {
      bool alive = false;
      int64_t version = -1;
      std::set<uint64_t> has;
      std::vector<uint64_t> had;
    };
    std::vector<Walker> walkers(num_workers);
    std::map<uint64_t, int64_t> n_of;
    std::map<uint64_t, size_t> answer_of;
    std::set<uint64_t> cancelled_tickets;
    const auto act = [&](size_t i, uint64_t choice) {
      Walker& walker = walkers[i];
      if (!walker.alive) {
        if (choice < 50)
          dispatcher->mark_joined(i), walker = {.alive = true, .version = -1, .has = {}, .had = std::move(walker.had)};
        return;
      }
      if (choice < 4) {
        dispatcher->mark_lost(i, "chance");
        walker.alive = false;
        walker.had.insert(walker.had.end(), walker.has.begin(), walker.has.end());
        walker.has.clear();
      } else if (choice < 60) {
        const Dispatcher::Work work = poll_worker(i, walker.version);
        if (work.weights) {
          walker.version = work.weights->version();
          return;
        }
        for (const WorkerPoll::Submission& of : work.submit)
          EXPECT_TRUE(walker.has.insert(of.ticket).second) << "sent twice";
        for (const uint64_t ticket : work.cancel) walker.has.erase(ticket);  // unless it has finished it already
        EXPECT_EQ(work.tokens > 0, !walker.has.empty());
      } else if (choice < 65 && !walker.had.empty()) {
        const uint64_t late = walker.had[random.below(walker.had.size())];
        if (!walker.has.contains(late)) finish(i, late, n_of.at(late), walker.version);
      } else if (!walker.has.empty()) {
        const uint64_t ticket =
            *std::next(walker.has.begin(), static_cast<std::ptrdiff_t>(random.below(walker.has.size())));
        walker.has.erase(ticket);
        finish(i, ticket, n_of.at(ticket), walker.version);
      }
    };
    for (int turn = 0; turn < 400; ++turn) {
      const uint64_t choice = random.below(100);
      if (choice < 15) {
        const auto n = static_cast<int64_t>(1 + random.below(3));
        const uint64_t ticket = submit(1 + n * static_cast<int64_t>(1 + random.below(15)), n);
        n_of[ticket] = n, answer_of[ticket] = results.size() - 1;
      } else if (choice < 18 && !n_of.empty()) {
        const uint64_t ticket = std::next(n_of.begin(), static_cast<std::ptrdiff_t>(random.below(n_of.size())))->first;
        if (results[answer_of.at(ticket)].empty()) cancelled_tickets.insert(ticket);
        dispatcher->cancel(ticket);
      } else if (choice < 20) {
        dispatcher->set_weights(weights(++version));
      } else if (choice < 30) {
        // Only if a request is finished or none is left: otherwise step() would wait.
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
      ASSERT_EQ(results[answer_of.at(ticket)].size(), cancelled_tickets.contains(ticket) ? 0u : static_cast<size_t>(n))
          << ticket;
    for (size_t i = 0; i < num_workers; ++i) EXPECT_EQ(poll_worker(i, walkers[i].version).tokens, 0);
  }
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hone::test
