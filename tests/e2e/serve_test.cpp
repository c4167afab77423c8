// `hone serve` as a service: signals, exit codes, and resources after hundreds of bad clients.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <vector>

#include "tests/rollout/byte_model.h"
#include "tests/support/http_client.h"
#include "tests/support/network.h"
#include "tests/support/process.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

class ServeTest : public ::testing::Test {
 protected:
  ServeTest() { TinyModel().save(folder.path() / "tiny"); }
  std::vector<std::string> arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> out{"serve", "--model", (folder.path() / "tiny").string(), "--port", "0"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  static bool refuses(int64_t port) {
    try {
      HttpClient client(port);
      return false;
    } catch (const std::runtime_error&) {
      return true;
    }
  }
  // The first completions alone take about a second of the complete response.
  static std::string long_request(int n) {
    return post_request(
        "/v1/completions",
        concat(R"({"prompt": "a", "max_tokens": 500, "ignore_eos": true, "stream": true, "n": )", n, "}"));
  }
  TemporaryFolder folder;
};

TEST_F(ServeTest, TerminatedItFinishesWhatIsUnderWay) {
  Process serving(arguments({"--max-num-seqs", "1"}));
  const int64_t port = serving.port();
  HttpClient idle(port), busy(port);
  EXPECT_EQ(idle.get("/health").status, 200);
  busy.send(long_request(20));
  ASSERT_TRUE(busy.read_until("data: "));
  serving.signal(SIGTERM);
  EXPECT_TRUE(soon([&] { return refuses(port); }));
  EXPECT_TRUE(idle.ends());
  EXPECT_FALSE(serving.ends_within(0));
  EXPECT_TRUE(busy.answer().body.ends_with("data: [DONE]\n\n"));
  ASSERT_TRUE(serving.ends_within(20));
  const Finished done = serving.wait();
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.err.find("were dropped"), std::string::npos) << done.err;
}

TEST_F(ServeTest, ASecondSignalEndsItAtOnce) {
  Process serving(arguments({"--max-num-seqs", "1", "--drain-seconds", "600"}));
  const int64_t port = serving.port();
  HttpClient busy(port);
  busy.send(long_request(1000));
  ASSERT_TRUE(busy.read_until("data: "));
  serving.signal(SIGTERM);
  EXPECT_TRUE(soon([&] { return refuses(port); }));
  EXPECT_FALSE(serving.ends_within(0.3));
  serving.signal(SIGTERM);
  ASSERT_TRUE(serving.ends_within(20));
  const Finished done = serving.wait();
  EXPECT_EQ(done.code, 128 + SIGTERM) << done.err;
  EXPECT_EQ(busy.answer().status, 0);
}

TEST_F(ServeTest, SoDoesTheTimeThatTheyAreGiven) {
  Process serving(arguments({"--max-num-seqs", "1", "--drain-seconds", "0.3"}));
  HttpClient busy(serving.port());
  busy.send(long_request(1000));
  ASSERT_TRUE(busy.read_until("data: "));
  serving.signal(SIGTERM);
  ASSERT_TRUE(serving.ends_within(20));
  const Finished done = serving.wait();
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.err.find("pending requests were dropped after 0."), std::string::npos) << done.err;
}

TEST_F(ServeTest, ATakenPortIsAnError) {
  const Process serving(arguments());
  const Finished second =
      run_hone({"serve", "--model", (folder.path() / "tiny").string(), "--port", std::to_string(serving.port())});
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.err.find(concat("cannot listen on 127.0.0.1 port ", serving.port())), std::string::npos)
      << second.err;
}

// After a client's cable is cut, nothing arrives from it, not even the end of its connection.
TEST_F(ServeTest, AVanishedClientIsDropped) {
  if (!Network::allowed()) GTEST_SKIP() << "no network of its own here (root, and Debian's iproute2)";
  const Network network;
  const Process serving(arguments({"--max-num-seqs", "1", "--peer-timeout", "2", "--host", network.address()}), {}, "",
                        network.launcher());
  const int64_t port = serving.port();
  const auto metrics = [&] { return HttpClient(port, 0, network.address()).get("/metrics").body; };
  HttpClient streaming(port, 4096, network.address()), waiting(port, 0, network.address());
  streaming.send(long_request(200));
  ASSERT_TRUE(streaming.read_until("data: "));
  waiting.send(post_request("/v1/completions", R"({"prompt": "a", "max_tokens": 500, "ignore_eos": true, "n": 500})"));
  ASSERT_TRUE(soon([&] { return metrics().find("\nhone_replies 700\n") != std::string::npos; })) << metrics();
  network.pull();
  std::this_thread::sleep_for(std::chrono::seconds(4));
  network.plug();
  EXPECT_TRUE(soon([&] { return metrics().find("\nhone_jobs_cancelled_total 2\n") != std::string::npos; }))
      << metrics();
  EXPECT_NE(metrics().find("\nhone_replies 0\n"), std::string::npos);
}

// Bad clients of every kind, repeatedly: memory stays at its level after the first rounds.
TEST_F(ServeTest, BadClientsLeaveNoMemoryBehind) {
  Process serving(arguments({"--request-timeout", "0.5", "--kv-cache-tokens", "8192"}));
  const int64_t port = serving.port();
  const auto is_free = [&] {
    const std::string text = HttpClient(port).get("/metrics").body;
    for (const char* fact : {"\nhone_replies 0\n", "\nhone_kv_cache_held_tokens 0\n", "\nhone_connections 1\n"})
      if (text.find(fact) == std::string::npos) return false;
    return true;
  };
  int64_t before = 0;
  constexpr int rounds = 5;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 200; ++i) {
      clients.push_back(std::make_unique<HttpClient>(port, 4096));
      HttpClient& client = *clients.back();
      if (i % 5 == 0) client.send(long_request(4));
      if (i % 5 == 1) client.send(post_request("/v1/completions", std::string(100000, '[')));
      if (i % 5 == 2)
        client.send(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
            "100000\r\n\r\n" +
            std::string(50000, ' '));
      if (i % 5 == 3) client.send("GET /" + std::string(30000, 'x'));
      if (i % 5 == 4) client.send(long_request(1)), client.close_half();
    }
    ASSERT_TRUE(clients[0]->read_until("data: "));
    for (size_t i = 0; i < clients.size(); i += 2) clients[i]->reset();
    clients.clear();
    ASSERT_TRUE(soon(is_free)) << HttpClient(port).get("/metrics").body;
    if (round == 1) before = serving.resident_bytes();
  }
  EXPECT_LT(serving.resident_bytes() - before, int64_t{16} << 20);
  serving.signal(SIGTERM);
  ASSERT_TRUE(serving.ends_within(20));
  EXPECT_EQ(serving.wait().code, 0);
}

}  // namespace
}  // namespace hone::test
