// How weights reach the workers of a pool, over a device link or streamed, and what happens when that fails.
#include "rollout/remote/worker_link.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "tests/rollout/remote/worker_fixture.h"
#include "tests/support/http_client.h"
#include "tests/support/local_link.h"
#include "tests/support/support.h"
#include "tests/support/tcp_proxy.h"

namespace hone::test {
namespace {

class WorkerLinkTest : public WorkerFixture {
 protected:
  WorkerLinkTest() {
    LocalLinks::join_registry();
    LocalLinks::opened = LocalLinks::tried = LocalLinks::arrived = LocalLinks::waiting = 0;
    transport = "auto";
  }
  ~WorkerLinkTest() override { LocalLinks::fault = LinkFault::none; }
  static constexpr double patient = 60;  // seconds; a link then has 30 for a transfer and 10 to open
  static bool both_wait() {
    return soon([] { return LocalLinks::waiting == 2; });
  }
  // Breaks the connection while both sides wait on the link, which does not notice it.
  static void break_off(TcpProxy& cable) {
    ASSERT_TRUE(both_wait());
    cable.set(TcpProxy::Mode::refuse);
    EXPECT_TRUE(soon([] { return LocalLinks::waiting == 0; }, 3)) << LocalLinks::waiting << " sides still wait";
    LocalLinks::fault = LinkFault::none;
    cable.set(TcpProxy::Mode::pass);
  }
  Completions generate_at(int64_t version, WorkerPool& from) {
    from.set_policy_version(version);
    return generate(from, requests(4));
  }
  // Three versions, each with the engine's own bits.
  void expect_three_versions(WorkerPool& from, int64_t first = 0) {
    for (int64_t version = first; version < first + 3; ++version) {
      from.set_policy_version(version);
      expect_bits(generate(from, requests()), expected(requests(), version));
      change(static_cast<uint64_t>(version));
    }
  }
};

TEST_F(WorkerLinkTest, WeightsGoOverIt) {
  for (int i = 0; i < 2; ++i) start();
  const auto from = pool({workers[0]->port(), workers[1]->port()});
  expect_three_versions(*from);
  EXPECT_EQ(LocalLinks::opened, 4) << "two sides each";
  EXPECT_EQ(LocalLinks::arrived, 6) << "three versions each";
}

TEST_F(WorkerLinkTest, UnderAdaptersTheBaseIsStreamed) {
  use_adapters();
  start();
  const auto from = pool({workers[0]->port()});
  expect_three_versions(*from);
  EXPECT_EQ(LocalLinks::arrived, 3);
}

TEST_F(WorkerLinkTest, IfItDoesNotOpenWeightsAreStreamed) {
  LocalLinks::fault = LinkFault::never_opens;
  WorkerConfig config;
  config.lease = 1.8;  // shorter than opening takes, and longer than an idle learner's messages are apart
  start(config);
  const auto from = pool({workers[0]->port()}, 8);
  expect_three_versions(*from);
  EXPECT_EQ(LocalLinks::opened, 0);
  const Metrics metrics = from->metrics();
  EXPECT_FALSE(metrics.contains("workers/lost")) << "the worker is as good without";
}

TEST_F(WorkerLinkTest, IfItBreaksWeightsAreStreamedUntilTheWorkerJoinsAgain) {
  start();
  TcpProxy cable(workers[0]->port());
  const auto from = pool({cable.port()}, 4);
  from->set_policy_version(0);
  expect_bits(generate(*from, requests()), expected(requests(), 0));
  LocalLinks::fault = LinkFault::breaks;
  change(7);
  expect_three_versions(*from, 1);
  EXPECT_EQ(LocalLinks::arrived, 1);
  LocalLinks::fault = LinkFault::none;
  cable.set(TcpProxy::Mode::refuse);
  ASSERT_TRUE(soon([&] { return from->metrics()["workers/alive"] == 0; }));
  cable.set(TcpProxy::Mode::pass);
  expect_three_versions(*from, 4);
  EXPECT_GT(LocalLinks::arrived, 1);
}

TEST_F(WorkerLinkTest, BothSidesAbortATransferWhenTheirConnectionBreaks) {
  start();
  TcpProxy cable(workers[0]->port());
  const auto from = pool({cable.port()}, patient);
  from->set_policy_version(0);
  expect_bits(generate(*from, requests()), expected(requests(), 0));
  LocalLinks::fault = LinkFault::stalls;
  change(7);
  const Stopwatch since;
  from->set_policy_version(1);
  break_off(cable);
  expect_bits(generate(*from, requests()), expected(requests(), 1));
  EXPECT_LT(since.seconds(), 5);
  EXPECT_EQ(LocalLinks::opened, 4) << "the worker has joined again, with a link";
}

TEST_F(WorkerLinkTest, BothSidesAbortAnOpeningWhenTheirConnectionBreaks) {
  LocalLinks::fault = LinkFault::never_opens;
  start();
  TcpProxy cable(workers[0]->port());
  const Stopwatch since;
  auto made = std::async(std::launch::async, [&] { return pool({cable.port()}, patient); });
  break_off(cable);
  const auto from = made.get();
  expect_three_versions(*from);
  EXPECT_LT(since.seconds(), 5);
  EXPECT_EQ(LocalLinks::arrived, 3);
}

TEST_F(WorkerLinkTest, ALearnerThatEndsDuringATransferLeavesTheWorkerFree) {
  start();
  auto from = pool({workers[0]->port()}, patient);
  LocalLinks::fault = LinkFault::stalls;
  from->set_policy_version(0);
  ASSERT_TRUE(both_wait());
  const Stopwatch since;
  from.reset();
  EXPECT_LT(since.seconds(), 3);
  EXPECT_TRUE(parse_json(HttpClient(workers[0]->port()).get("/health").body, "").at("run").is_null());
}

TEST_F(WorkerLinkTest, ALearnerThatEndsWhileTheWorkerAloneStillWaitsLeavesItFree) {
  start();
  auto from = pool({workers[0]->port()}, patient);
  LocalLinks::fault = LinkFault::loses;
  from->set_policy_version(0);
  ASSERT_TRUE(soon([] { return LocalLinks::waiting == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the commit goes over the same connection
  EXPECT_EQ(LocalLinks::waiting, 1);
  const Stopwatch since;
  from.reset();
  EXPECT_LT(since.seconds(), 3);
  EXPECT_TRUE(soon([] { return LocalLinks::waiting == 0; }, 2));
  EXPECT_TRUE(
      soon([&] { return parse_json(HttpClient(workers[0]->port()).get("/health").body, "").at("run").is_null(); }, 1));
}

TEST_F(WorkerLinkTest, ValuesThatDidNotArriveAreStreamed) {
  start();
  const auto from = pool({workers[0]->port()}, 4);
  LocalLinks::fault = LinkFault::loses;
  expect_three_versions(*from);
  EXPECT_EQ(LocalLinks::arrived, 0);
  const Metrics metrics = from->metrics();
  EXPECT_FALSE(metrics.contains("workers/lost"));
}

TEST_F(WorkerLinkTest, AWorkerThatEndsDuringATransferEndsAtOnce) {
  start();
  const auto from = pool({workers[0]->port()}, patient);
  LocalLinks::fault = LinkFault::stalls;
  from->set_policy_version(0);
  ASSERT_TRUE(both_wait());
  const Stopwatch since;
  workers.clear();
  EXPECT_LT(since.seconds(), 3);
  EXPECT_TRUE(soon([] { return LocalLinks::waiting == 0; }, 3));
}

TEST_F(WorkerLinkTest, OneThatNeverOpensIsTriedThreeTimes) {
  LocalLinks::fault = LinkFault::never_opens;
  start();
  TcpProxy cable(workers[0]->port());
  const auto from = pool({cable.port()}, 2);
  for (int64_t life = 0; life < 4; ++life) {
    from->set_policy_version(life);
    expect_bits(generate(*from, requests(3)), expected(requests(3), life));
    cable.set(TcpProxy::Mode::refuse);
    ASSERT_TRUE(soon([&] { return from->metrics()["workers/alive"] == 0; }));
    cable.set(TcpProxy::Mode::pass);
  }
  EXPECT_EQ(LocalLinks::tried, 6) << "three times by each side";
}

TEST_F(WorkerLinkTest, OneWhoseOpeningBreaksTheConnectionIsTriedThreeTimes) {
  LocalLinks::fault = LinkFault::never_opens;
  start();
  TcpProxy cable(workers[0]->port());
  auto made = std::async(std::launch::async, [&] { return pool({cable.port()}, patient); });
  for (int life = 0; life < 3; ++life) {
    ASSERT_TRUE(both_wait());
    cable.set(TcpProxy::Mode::refuse);
    ASSERT_TRUE(soon([] { return LocalLinks::waiting == 0; }, 3));
    cable.set(TcpProxy::Mode::pass);
  }
  const auto from = made.get();
  expect_three_versions(*from);
  EXPECT_EQ(LocalLinks::tried, 6) << "three times by each side";
}

TEST_F(WorkerLinkTest, ATransportSetByNameIsTheOnlyOne) {
  LocalLinks::fault = LinkFault::never_opens;
  transport = "local";
  start();
  const auto from = pool({workers[0]->port()}, 0.5);
  from->set_policy_version(0);
  try {
    generate(*from, requests(1));
    ADD_FAILURE() << "there is a reply";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("weight_transport is local"), std::string::npos) << error.what();
  }
}

TEST_F(WorkerLinkTest, ConcurrentChunksSurviveABrokenNetwork) {
  transport = "stream";
  use_chunks(13, 8192);
  start();
  TcpProxy proxy(workers[0]->port());
  const auto from = pool({proxy.port()}, 10);
  proxy.set_bytes_per_second(100'000'000);  // slow enough that eight chunks overlap
  for (int64_t version = 0; version < 4; ++version) {
    from->set_policy_version(version);
    std::jthread network([&] {
      for (int turn = 0; turn < 2 * static_cast<int>(version); ++turn) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10 + 7 * turn));
        proxy.set(turn % 2 == 0 ? TcpProxy::Mode::refuse : TcpProxy::Mode::pass);
      }
    });
    expect_bits(generate(*from, requests(4)), expected(requests(4), version));
    network.join();
    proxy.set_bytes_per_second(0);
    EXPECT_EQ(proxy.most_asking(), 8) << "blocks in flight";
    change(static_cast<uint64_t>(version));
  }
}

// With eight chunks at once the learner would send no message for longer than the lease.
TEST_F(WorkerLinkTest, OnASlowNetworkFewerChunksAreSentAtOnce) {
  transport = "stream";
  use_chunks(9, 5760);
  WorkerConfig config;
  config.lease = 3;
  start(config);
  TcpProxy narrow(workers[0]->port());
  const auto from = pool({narrow.port()}, 10);
  narrow.set_bytes_per_second(6'000'000);
  expect_bits(generate_at(0, *from), expected(requests(4), 0));
  EXPECT_LE(narrow.most_asking(), 3);
  const Metrics metrics = from->metrics();
  EXPECT_FALSE(metrics.contains("workers/lost"));
}

TEST_F(WorkerLinkTest, ASlowChunkIsSentAgain) {
  transport = "stream";
  use_two_chunks();
  start();
  TcpProxy cable(workers[0]->port());
  const auto from = pool({cable.port()}, 20);
  cable.set_bytes_per_second(1'000'000);
  from->set_policy_version(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  cable.set(TcpProxy::Mode::refuse);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  cable.set_bytes_per_second(0);
  cable.set(TcpProxy::Mode::pass);
  expect_bits(generate(*from, requests(4)), expected(requests(4), 0));
  const Metrics metrics = from->metrics();
  EXPECT_FALSE(metrics.contains("workers/lost"));
}

TEST_F(WorkerLinkTest, ChunksArriveIfOneConnectionOfEightFails) {
  transport = "stream";
  use_chunks(13, 8192);
  start();
  TcpProxy proxy(workers[0]->port());
  proxy.set_most_open(7);
  const auto from = pool({proxy.port()}, 10);
  proxy.set_bytes_per_second(100'000'000);
  expect_bits(generate_at(0, *from), expected(requests(4), 0));
  EXPECT_EQ(proxy.most_asking(), 7);
}

TEST_F(WorkerLinkTest, TransportStreamOpensNoLink) {
  transport = "stream";
  start();
  const auto from = pool({workers[0]->port()});
  expect_three_versions(*from);
  EXPECT_EQ(LocalLinks::opened, 0);
}

}  // namespace
}  // namespace hone::test
