// The bits of a run equal those of one without workers, whatever fails: workers, the network or the learner.
#include <signal.h>

#include <atomic>
#include <chrono>

#include "core/base/rng.h"
#include "core/base/stopwatch.h"
#include "core/net/digest.h"
#include "tests/e2e/workers_run.h"
#include "tests/support/certificate.h"
#include "tests/support/http_server.h"
#include "tests/support/network.h"
#include "tests/support/tcp_proxy.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

TEST_F(WorkersRun, RequestsOfAKilledWorkerMoveToAnother) {
  const WorkerProcess one, two;
  Process learner(with("run", {one.url(), two.url()}, 3));
  ASSERT_TRUE(reaches("run", "grpo/step-2"));
  one.signal(SIGKILL);
  const std::string log = expect_ends(learner, "run", 20);
  EXPECT_EQ(count(log, lost(one.url())), 1u) << "its absence is said once: " << log;
  EXPECT_EQ(count(log, lost(two.url())), 0u) << log;
  EXPECT_EQ(sum_of(path("run"), "workers/lost"), 1);
  EXPECT_GE(sum_of(path("run"), "workers/retried"), 1);
}

TEST_F(WorkersRun, AWorkerKilledAtRandomAndRestartedLosesNothingAndGetsItsWeights) {
  auto worker = std::make_unique<WorkerProcess>();
  const std::string address = worker->address();
  Process learner(with("run", {worker->url()}, 5));
  Rng random(7, 0);
  for (int kill = 1; kill <= 4; ++kill) {
    ASSERT_TRUE(soon([&] { return count(learner.err(), "has joined") == static_cast<size_t>(kill); })) << learner.err();
    ASSERT_TRUE(kill > 1 || reaches("run", "grpo/step-2"));
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(20000)));
    worker->signal(SIGKILL);
    worker->wait();
    worker = std::make_unique<WorkerProcess>(address);
  }
  const std::string log = expect_ends(learner, "run", 30);
  EXPECT_EQ(count(log, lost("http://" + address)), 4u) << log;
  EXPECT_EQ(count(log, "has joined"), 5u) << log;
  EXPECT_EQ(count(worker->err(), "generates for run"), 1u) << worker->err();
}

TEST_F(WorkersRun, AHangingWorkerIsLostInTimeAndJoinsAgainLater) {
  const WorkerProcess one, two;
  Process learner(with("run", {one.url(), two.url()}, 1.5));
  ASSERT_TRUE(reaches("run", "grpo/step-2"));
  one.signal(SIGSTOP);
  const Stopwatch since;
  ASSERT_TRUE(says(learner, lost(one.url()), 10)) << learner.err();
  EXPECT_LT(since.seconds(), 6);
  two.signal(SIGSTOP);  // so that the run waits for the first
  one.signal(SIGCONT);
  ASSERT_TRUE(soon([&] { return count(learner.err(), one.url() + " has joined") == 2; }, 15)) << learner.err();
  const std::string log = expect_ends(learner, "run", 25);
  two.signal(SIGCONT);
  EXPECT_NE(log.find("no response within 1.5 seconds"), std::string::npos) << log;
  EXPECT_NE(log.find("are assigned again"), std::string::npos) << log;
}

TEST_F(WorkersRun, ASlowWorkersRequestsAreDuplicated) {
  const WorkerProcess one, two;
  Process learner(with("run", {one.url(), two.url()}, 60));
  ASSERT_TRUE(reaches("run", "grpo/step-2"));
  one.signal(SIGSTOP);
  ASSERT_TRUE(
      says(learner,
           concat("http://127.0.0.1:", one.port(), " is slow; ", two.url(), " also generates one of its requests"), 20))
      << learner.err();
  one.signal(SIGCONT);
  const std::string log = expect_ends(learner, "run", 30);
  EXPECT_EQ(count(log, "is lost"), 0u) << log;
  EXPECT_GE(sum_of(path("run"), "workers/duplicated"), 1);
}

TEST_F(WorkersRun, ASlowConnectionChangesOnlyTheTime) {
  const WorkerProcess one, two;
  TcpProxy narrow(one.port());
  Process learner(with("run", {url(narrow.port()), two.url()}, 20));
  ASSERT_TRUE(reaches("run", "grpo/step-10"));
  narrow.set_bytes_per_second(150000);
  const std::string log = expect_ends(learner, "run", 40);
  EXPECT_EQ(count(log, "is lost"), 0u) << log;
}

TEST_F(WorkersRun, ADisconnectedWorkerContinuesAfterwards) {
  const WorkerProcess one;
  TcpProxy cable(one.port());
  Process learner(with("run", {url(cable.port())}, 6));
  ASSERT_TRUE(reaches("run", "grpo/step-2"));
  cable.set(TcpProxy::Mode::stall);  // for less than worker_timeout
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  cable.set(TcpProxy::Mode::pass);
  ASSERT_TRUE(reaches("run", "grpo/step-4"));
  EXPECT_EQ(count(learner.err(), "is lost"), 0u) << learner.err();
  cable.set(TcpProxy::Mode::refuse);
  const Stopwatch since;
  ASSERT_TRUE(says(learner, lost(url(cable.port())), 10)) << learner.err();
  EXPECT_LT(since.seconds(), 5) << "2 seconds are enough to know";
  cable.set(TcpProxy::Mode::pass);
  const std::string log = expect_ends(learner, "run", 20);
  EXPECT_EQ(count(log, "has joined"), 2u) << log;
}

TEST_F(WorkersRun, WithItsCablePulledAWorkerIsLostAndComesBack) {
  if (!Network::allowed()) GTEST_SKIP() << "no networks of its own for a test here";
  const Network network;
  std::ofstream(path("key")) << "sesame\n";
  const WorkerProcess far(network.address() + ":0", {"--api-key-file", path("key")}, network.launcher());
  Process learner(with("run", {far.url()}, 2, {"rollout.worker_key_file=" + path("key").string()}));
  ASSERT_TRUE(reaches("run", "grpo/step-2"));
  network.pull();
  const Stopwatch since;
  ASSERT_TRUE(says(learner, lost(far.url()), 10)) << learner.err();
  EXPECT_LT(since.seconds(), 6);
  network.plug();
  const std::string log = expect_ends(learner, "run", 25);
  EXPECT_NE(log.find("no response within 2 seconds"), std::string::npos) << log;
  EXPECT_EQ(count(log, "has joined"), 2u) << log;
}

TEST_F(WorkersRun, TlsHasTheSameBitsAndUntrustedWorkersAreRefused) {
  const auto [certificate, key] = make_certificate(folder.path(), "IP:127.0.0.1");
  if (certificate.empty()) GTEST_SKIP() << "no openssl program to make a certificate with";
  const WorkerProcess worker("127.0.0.1:0", {"--tls-cert", certificate, "--tls-key", key});
  const std::string secure = "https://" + worker.address();
  Process learner(with("run", {secure}, 20), {"SSL_CERT_FILE=" + certificate});
  expect_ends(learner, "run", 30);
  const Finished refused = run_hone(with("other", {secure}, 1));
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("certificate verify failed"), std::string::npos) << refused.err;
}

TEST_F(WorkersRun, MessagesThatAreDamagedAreNeverTaken) {
  const WorkerProcess one, two;
  TcpProxy cable(one.port());
  Process learner(with("run", {url(cable.port()), two.url()}, 3));
  ASSERT_TRUE(reaches("run", "grpo/step-2"));
  cable.set(TcpProxy::Mode::garble);
  const std::string log = expect_ends(learner, "run", 30);
  EXPECT_GE(count(log, lost(url(cable.port()))), 1u) << log;
}

// A fake worker that answers correctly, with the right digests, but samples with other weights.
TEST_F(WorkersRun, AServerThatIsNoWorkerIsRefused) {
  const auto answer = [](const Json& body) {
    const std::string text = body.dump();
    return http_response(text, 200, concat("x-hone-digest: ", base64(sha256(text)), "\r\n"));
  };
  std::atomic<int> turns = 0;
  HttpServer liar([&](const ReceivedRequest& request) {
    const Json body = parse_json(request.body, "body");
    if (request.head.starts_with("POST /v1/worker/join"))
      return answer(JsonObject{{"session", "1"}, {"device", "cpu"}, {"links", JsonArray{}}});
    if (request.head.starts_with("POST /v1/worker/commit"))
      return answer(JsonObject{{"version", body.at("version")}, {"missing", JsonArray{}}});
    if (!request.head.starts_with("POST /v1/worker/turn")) return answer(JsonObject{});
    JsonArray finished;
    const std::string id = "AAAAAA==", number = "f39/f39/f38=", none;  // 0 in four bytes, and 0x7f7f7f7f7f7f7f7f
    for (const Json& of : body.at("submit").as_array()) {
      JsonArray replies;
      for (int64_t i = 0; i < of.at("request").at("n").as_int(); ++i)
        replies.push_back(JsonObject{{"ids", id},
                                     {"logp", id},
                                     {"truncated_logp", id},
                                     {"raw_logp", id},
                                     {"forced", none},
                                     {"versions", number},
                                     {"top_logprobs", JsonArray{}},
                                     {"prompt_logp", none},
                                     {"prompt_top_logprobs", JsonArray{}},
                                     {"text", none},
                                     {"finish_reason", "stop"},
                                     {"failed", false}});
      finished.push_back(JsonObject{{"ticket", of.at("ticket")}, {"replies", replies}});
      ++turns;
    }
    return answer(JsonObject{{"turn", body.at("turn")},
                             {"version", body.at("version")},
                             {"computed_tokens", turns.load()},
                             {"finished", finished}});
  });
  HttpServer nonsense([&](const ReceivedRequest&) { return answer(JsonObject{{"session", 7}}); });
  HttpServer web([](const ReceivedRequest&) { return http_response("<html>welcome</html>"); });
  const WorkerProcess one;
  const std::string liar_url = liar.url("127.0.0.1", ""), nonsense_url = nonsense.url("127.0.0.1", ""),
                    web_url = web.url("127.0.0.1", "");
  Process learner(with("run", {liar_url, nonsense_url, web_url, one.url()}, 5));
  const std::string log = expect_ends(learner, "run", 40);
  EXPECT_GE(turns, 1);
  EXPECT_NE(log.find(lost(liar_url) + "a token was sampled by version 9187201950435737471"), std::string::npos) << log;
  EXPECT_NE(log.find(lost(nonsense_url) + "session: expected a string"), std::string::npos) << log;
  EXPECT_NE(log.find(lost(web_url) + "messages arrive damaged"), std::string::npos) << log;
  EXPECT_EQ(count(log, lost(one.url())), 0u) << log;
  EXPECT_LE(count(log, lost(liar_url)), 8u) << "it is asked less and less often: " << log;
}

TEST_F(WorkersRun, AMissingOrEmptyKeyFileIsAnErrorBeforeAnythingIsWritten) {
  std::ofstream(path("empty")) << "# nothing\n";
  for (const auto& [file, words] : {std::pair{"empty", "the file has no key"}, {"missing", "missing"}}) {
    const Finished refused =
        run_hone(with("run", {"http://127.0.0.1:9"}, 1, {"rollout.worker_key_file=" + path(file).string()}));
    EXPECT_EQ(refused.code, 1) << refused.err;
    EXPECT_NE(refused.err.find(words), std::string::npos) << refused.err;
    EXPECT_FALSE(fs::exists(path("run"))) << refused.err;
  }
}

TEST_F(WorkersRun, AWrongKeyStopsARunWithoutAnotherEngine) {
  std::ofstream(path("keys")) << "sesame\n";
  std::ofstream(path("wrong")) << "open\n";
  const WorkerProcess closed("127.0.0.1:0", {"--api-key-file", path("keys")}),
      open("127.0.0.1:0", {"--api-key-file", path("wrong")});
  const std::string key = "rollout.worker_key_file=" + path("wrong").string();
  Process alone(with("alone", {closed.url()}, 1, {key}));
  ASSERT_TRUE(alone.ends_within(15)) << alone.err();
  const Finished stopped = alone.wait();
  EXPECT_EQ(stopped.code, 1);
  EXPECT_NE(stopped.err.find(concat("; ", closed.url(), ": an API key is needed")), std::string::npos) << stopped.err;
  Process learner(with("run", {closed.url(), open.url()}, 3, {key}));
  const std::string log = expect_ends(learner, "run", 30);
  EXPECT_NE(log.find(lost(closed.url()) + "an API key is needed"), std::string::npos) << log;
}

TEST_F(WorkersRun, ARunWithoutWorkersStopsInTimeAndContinuesWhenTheyReturn) {
  auto one = std::make_unique<WorkerProcess>(), two = std::make_unique<WorkerProcess>();
  const std::string first = one->address(), second = two->address();
  Process learner(with("run", {one->url(), two->url()}, 1.5));
  ASSERT_TRUE(reaches("run", "grpo/step-4"));
  for (const auto& worker : {one.get(), two.get()}) worker->signal(SIGKILL), worker->wait();
  const Stopwatch since;
  ASSERT_TRUE(learner.ends_within(10)) << learner.err();
  EXPECT_GT(since.seconds(), 1);
  const Finished stopped = learner.wait();
  ASSERT_EQ(stopped.code, 1) << stopped.err;
  const size_t error = stopped.err.find("for 1.5 seconds");
  ASSERT_NE(error, std::string::npos) << stopped.err;
  for (const std::string& name : {first, second})
    EXPECT_NE(stopped.err.find("http://" + name + ": ", error), std::string::npos) << stopped.err;
  EXPECT_FALSE(fs::exists(path("run") / "checkpoints" / last));
  const WorkerProcess third(first), fourth(second);
  Process resumed({"run", "--resume", path("run").string()});
  expect_ends(resumed, "run", 30);
}

TEST_F(WorkersRun, ALearnerKilledAndResumedHasItsWorkersAtOnceAndTheSameBits) {
  const WorkerProcess one, two;
  for (const int64_t k : {0, 1}) {
    const std::string name = concat("run_", k);
    const std::vector<std::string> ahead = {concat("stage.grpo.max_staleness=", k)};
    const fs::path here = path(concat("here_", k));
    ASSERT_EQ(run_hone(arguments(here.filename(), ahead)).code, 0);
    EXPECT_EQ(end_at_checkpoint(with(name, {one.url(), two.url()}, 5, ahead), path(name), "grpo/step-6", SIGKILL).code,
              128 + SIGKILL);
    EXPECT_FALSE(fs::exists(path(name) / "checkpoints" / last));
    const Finished resumed = run_hone({"run", "--resume", path(name).string()});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(count(resumed.err, "is lost"), 0u) << resumed.err;
    expect_same_checkpoints(here, path(name), {last + "/model.safetensors", last + "/trainer/trainer.safetensors"});
    EXPECT_EQ(sum_of(here, "reward"), sum_of(path(name), "reward"));
  }
}

}  // namespace
}  // namespace hone::test
