// Runs whose replies are written by `hone worker` processes: the bits are those of a run without any, whatever happens to workers, to the network and
// to the learner.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "core/net/digest.h"
#include "core/rng.h"
#include "core/stopwatch.h"
#include "tests/e2e/recipe_run.h"
#include "tests/e2e/whole_run.h"
#include "tests/support/certificate.h"
#include "tests/support/http_server.h"
#include "tests/support/network.h"
#include "tests/support/tcp_proxy.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

const std::string stage = R"(
[rollout]
max_batch_tokens = 8
[[stage]]
kind = "rl"
objective = "grpo"
generator = { kind = "arithmetic", digits = 1, heldout = 20 }
prompts_per_step = 3
num_generations = 4
steps = 16
save_steps = 2
save_total_limit = 0
learning_rate = 1e-2
sampling = { max_tokens = 40, ignore_eos = true }
reward = { kind = "composite", parts = [ { kind = "number" }, { kind = "length", weight = 0.1, limit = 40, target = 3 } ] }
)";
const std::string last = "grpo/step-16";

// With a key of this process's own: the port of a worker that has ended may be another test's by then.
std::string key_file() {
  static const TemporaryFolder folder;
  static const std::string file = [] {
    const std::string path = folder.path() / "key";
    std::ofstream(path) << "key-" << ::getpid() << "\n";
    return path;
  }();
  return file;
}

// A worker, at any port or at one that another had.
class WorkerProcess : public Process {
 public:
  explicit WorkerProcess(const std::string& listen = "127.0.0.1:0", const std::vector<std::string>& more = {},
                         const std::vector<std::string>& launcher = {})
      : Process(arguments(listen, more), {}, "", launcher), host_(listen.substr(0, listen.rfind(':'))), port_(Process::port()) {}
  int64_t port() const { return port_; }
  std::string address() const { return concat(host_, ":", port_); }
  std::string url() const { return "http://" + address(); }

 private:
  static std::vector<std::string> arguments(const std::string& listen, const std::vector<std::string>& more) {
    std::vector<std::string> out = {"worker", "--listen", listen, "--device", "cpu"};
    if (std::ranges::find(more, "--api-key-file") == more.end()) out.insert(out.end(), {"--api-key-file", key_file()});
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  std::string host_;
  int64_t port_;
};

std::string url(int64_t port) { return concat("http://127.0.0.1:", port); }

size_t count(const std::string& text, const std::string& words) {
  size_t out = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++out;
  return out;
}

// Rows of a log, of what was learned alone: who wrote the replies, and how fast, is not part of it.
std::vector<std::string> learned(const fs::path& log) {
  std::vector<std::string> out;
  read_jsonl(log, [&](const Json& row, int64_t) {
    Json kept = JsonObject{};
    for (const auto& [name, value] : row.as_object())
      if (name.find("time") == std::string::npos && name.find("second") == std::string::npos && !name.starts_with("rollout/") &&
          !name.starts_with("workers/") && !name.starts_with("queue/") && name.find("idle_ratio") == std::string::npos)
        kept.set(name, value);
    out.push_back(kept.dump());
  });
  return out;
}

double sum_of(const fs::path& run, const std::string& metric) {
  double sum = 0;
  read_jsonl(run / "metrics.jsonl", [&](const Json& row, int64_t) {
    if (const Json* value = row.find(metric)) sum += value->as_double();
  });
  return sum;
}

class WorkersRun : public WholeRun {
 protected:
  explicit WorkersRun(const std::string& before = "", const std::string& more_of_model = "")
      : WholeRun(tiny_recipe("tiny", 1, before + stage, more_of_model)) {}

  std::vector<std::string> with(const std::string& name, const std::vector<std::string>& urls, double timeout,
                                std::vector<std::string> more = {}) const {
    std::string list;
    for (const std::string& one : urls) list += concat(list.empty() ? "" : ", ", "\"", one, "\"");
    // What comes later counts.
    more.insert(more.begin(),
                {concat("rollout.workers=[", list, "]"), concat("rollout.worker_timeout=", timeout), "rollout.worker_key_file=" + key_file()});
    return arguments(name, more);
  }
  fs::path path(const std::string& name) const { return folder.path() / name; }
  bool reaches(const std::string& name, const std::string& checkpoint, double seconds = 60) const {
    return soon([&] { return fs::exists(path(name) / "checkpoints" / checkpoint / "manifest.json"); }, seconds);
  }
  // The run that no fault came to, with the engine beside the learner.
  const fs::path& steady(const std::vector<std::string>& more = {}) {
    if (steady_.empty()) {
      const Finished done = run_hone(arguments("steady", more));
      EXPECT_EQ(done.code, 0) << done.err;
      steady_ = path("steady");
    }
    return steady_;
  }
  void expect_same_bits(const std::string& name) const {
    for (const char* file : {"metrics.jsonl", "samples.jsonl"}) {
      const std::vector<std::string> one = learned(steady_ / file), two = learned(path(name) / file);
      EXPECT_EQ(one.size(), two.size()) << file;
      for (size_t i = 0; i < std::min(one.size(), two.size()); ++i) ASSERT_EQ(one[i], two[i]) << file << " row " << i;
    }
    for (const auto& entry : fs::directory_iterator(steady_ / "checkpoints/grpo"))
      for (const char* file : {"model.safetensors", "adapter_model.safetensors", "trainer/trainer.safetensors"})
        if (fs::exists(entry.path() / file)) expect_same_checkpoints(steady_, path(name), {"grpo/" + entry.path().filename().string() + "/" + file});
    EXPECT_TRUE(fs::exists(path(name) / "checkpoints" / last));
  }
  // Ends well within so many seconds from now, with the bits of the steady run. Returns its log.
  std::string expect_ends(Process& learner, const std::string& name, double seconds) {
    const bool ended = learner.ends_within(seconds);
    EXPECT_TRUE(ended) << "it did not end within " << seconds << " seconds: " << learner.err();
    if (!ended) return {};
    const Finished done = learner.wait();
    EXPECT_EQ(done.code, 0) << done.err;
    steady();
    expect_same_bits(name);
    return done.err;
  }
  static bool says(const Process& process, const std::string& words, double seconds = 30) {
    return soon([&] { return process.err().find(words) != std::string::npos; }, seconds);
  }
  static std::string lost(const std::string& url) { return "worker " + url + " is lost: "; }

 private:
  fs::path steady_;
};

TEST_F(WorkersRun, HasTheSameBitsWithoutAWorkerWithOneAndWithThree) {
  const WorkerProcess one, two, three;
  steady();
  for (const std::vector<std::string>& urls : {std::vector<std::string>{one.url()}, {one.url(), two.url(), three.url()}}) {
    const std::string name = concat("with_", urls.size());
    const Finished done = run_hone(with(name, urls, 20));
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_EQ(count(done.err, "has joined"), urls.size()) << "one after another, a worker serves the runs that come: " << done.err;
    EXPECT_EQ(count(done.err, "is lost"), 0u) << done.err;
    expect_same_bits(name);
    for (size_t i = 0; i < urls.size(); ++i) EXPECT_GT(sum_of(path(name), concat("workers/", i, "/tokens_per_second")), 0) << i;
  }
}

TEST_F(WorkersRun, AheadOfTheLearnerHasTheSameBitsToo) {
  const WorkerProcess one, two;
  for (const int64_t k : {1, 2}) {
    const std::vector<std::string> ahead = {concat("stage.grpo.max_staleness=", k)};
    const fs::path here = path(concat("here_", k)), there = path(concat("there_", k));
    for (const auto& arguments_of : {arguments(here.filename(), ahead), with(there.filename(), {one.url(), two.url()}, 20, ahead)}) {
      const Finished done = run_hone(arguments_of);
      ASSERT_EQ(done.code, 0) << done.err;
    }
    expect_same_checkpoints(here, there, {last + "/model.safetensors", last + "/trainer/trainer.safetensors"});
    EXPECT_EQ(sum_of(here, "reward"), sum_of(there, "reward"));
    EXPECT_EQ(sum_of(here, "staleness/mean"), sum_of(there, "staleness/mean"));
    EXPECT_GT(sum_of(there, "staleness/mean"), 0);
  }
}

TEST_F(WorkersRun, WithNewWeightsInTheMiddleOfRepliesStaysWithinItsBound) {
  const WorkerProcess one, two;
  const Finished done = run_hone(with("run", {one.url(), two.url()}, 20, {"stage.grpo.max_staleness=1", "stage.grpo.deterministic=false"}));
  ASSERT_EQ(done.code, 0) << done.err;
  int64_t steps = 0;
  read_jsonl(path("run") / "metrics.jsonl", [&](const Json& row, int64_t) {
    if (const Json* oldest = row.find("staleness/max")) {
      ++steps;
      EXPECT_LE(oldest->as_double(), 1);
    }
  });
  EXPECT_EQ(steps, 16);
  EXPECT_EQ(sum_of(path("run"), "workers/lost"), 0);
}

const std::string base = R"(
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 1, heldout = 20, worked = 0.0 }
packing = "documents"
max_length = 32
batch_size = 8
steps = 4
)";

class AdapterWorkersRun : public WorkersRun {
 protected:
  AdapterWorkersRun() : WorkersRun(base, R"(lora = { r = 4, target_modules = "all-linear" })") {}
};

TEST_F(AdapterWorkersRun, HasTheSameBits) {
  const WorkerProcess one, two;
  Process learner(with("run", {one.url(), two.url()}, 20));
  expect_ends(learner, "run", 60);
  EXPECT_TRUE(fs::exists(path("run") / "checkpoints" / last / "adapter_model.safetensors"));
}

TEST_F(WorkersRun, WhatAKilledWorkerHadIsWrittenByAnother) {
  const WorkerProcess one, two;
  Process learner(with("run", {one.url(), two.url()}, 3));
  ASSERT_TRUE(reaches("run", "grpo/step-2"));
  one.signal(SIGKILL);
  const std::string log = expect_ends(learner, "run", 20);
  EXPECT_EQ(count(log, lost(one.url())), 1u) << "its absence is said once: " << log;
  EXPECT_EQ(count(log, lost(two.url())), 0u) << log;
  EXPECT_EQ(sum_of(path("run"), "workers/lost"), 1);
  EXPECT_GE(sum_of(path("run"), "workers/asked_again"), 1);
}

TEST_F(WorkersRun, KilledAtRandomAndStartedAgainAWorkerLosesNothingAndIsBroughtItsWeights) {
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
  EXPECT_EQ(count(worker->err(), "writes for"), 1u) << worker->err();
}

TEST_F(WorkersRun, AWorkerThatHangsIsLostInTimeAndWelcomeWhenItGoesOn) {
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
  EXPECT_NE(log.find("no answer within 1.5 seconds"), std::string::npos) << log;
  EXPECT_NE(log.find("are asked again"), std::string::npos) << log;
}

TEST_F(WorkersRun, AWorkerThatIsSlowIsHelped) {
  const WorkerProcess one, two;
  Process learner(with("run", {one.url(), two.url()}, 60));
  ASSERT_TRUE(reaches("run", "grpo/step-2"));
  one.signal(SIGSTOP);
  ASSERT_TRUE(says(learner, concat("http://127.0.0.1:", one.port(), " is slow; ", two.url(), " writes a request of it, too"), 20)) << learner.err();
  one.signal(SIGCONT);
  const std::string log = expect_ends(learner, "run", 30);
  EXPECT_EQ(count(log, "is lost"), 0u) << log;
  EXPECT_GE(sum_of(path("run"), "workers/asked_twice"), 1);
}

TEST_F(WorkersRun, ANarrowCableTakesTimeAndNothingElse) {
  const WorkerProcess one, two;
  TcpProxy narrow(one.port());
  Process learner(with("run", {url(narrow.port()), two.url()}, 20));
  ASSERT_TRUE(reaches("run", "grpo/step-10"));
  narrow.set_bytes_per_second(150000);
  const std::string log = expect_ends(learner, "run", 40);
  EXPECT_EQ(count(log, "is lost"), 0u) << log;
}

TEST_F(WorkersRun, AWorkerCutOffAndBackGoesOn) {
  const WorkerProcess one;
  TcpProxy cable(one.port());
  Process learner(with("run", {url(cable.port())}, 6));
  ASSERT_TRUE(reaches("run", "grpo/step-2"));
  cable.set(TcpProxy::Mode::stall);  // for less than the time after which anybody is lost
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
  EXPECT_NE(log.find("no answer within 2 seconds"), std::string::npos) << log;
  EXPECT_EQ(count(log, "has joined"), 2u) << log;
}

TEST_F(WorkersRun, OverTlsItHasTheSameBitsAndNobodyIsTakenForAWorkerUnvouched) {
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

// A worker that says what it should, with the right digests, and writes by weights that nobody gave it.
TEST_F(WorkersRun, WhatIsNoWorkerIsNotBelieved) {
  const auto answer = [](const Json& body) {
    const std::string text = body.dump();
    return http_response(text, 200, concat("x-hone-digest: ", base64(sha256(text)), "\r\n"));
  };
  std::atomic<int> turns = 0;
  HttpServer liar([&](const ReceivedRequest& request) {
    const Json body = parse_json(request.body, "body");
    if (request.head.starts_with("POST /v1/worker/join")) return answer(JsonObject{{"session", "1"}, {"device", "cpu"}, {"links", JsonArray{}}});
    if (request.head.starts_with("POST /v1/worker/commit")) return answer(JsonObject{{"version", body.at("version")}, {"missing", JsonArray{}}});
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
    return answer(JsonObject{{"turn", body.at("turn")}, {"version", body.at("version")}, {"computed_tokens", turns.load()}, {"finished", finished}});
  });
  HttpServer nonsense([&](const ReceivedRequest&) { return answer(JsonObject{{"session", 7}}); });
  HttpServer web([](const ReceivedRequest&) { return http_response("<html>welcome</html>"); });
  const WorkerProcess one;
  const std::string liar_url = liar.url("127.0.0.1", ""), nonsense_url = nonsense.url("127.0.0.1", ""), web_url = web.url("127.0.0.1", "");
  Process learner(with("run", {liar_url, nonsense_url, web_url, one.url()}, 5));
  const std::string log = expect_ends(learner, "run", 40);
  EXPECT_GE(turns, 1);
  EXPECT_NE(log.find(lost(liar_url) + "a token was drawn by version 9187201950435737471"), std::string::npos) << log;
  EXPECT_NE(log.find(lost(nonsense_url) + "session: expected a string"), std::string::npos) << log;
  EXPECT_NE(log.find(lost(web_url) + "messages are damaged on their way"), std::string::npos) << log;
  EXPECT_EQ(count(log, lost(one.url())), 0u) << log;
  EXPECT_LE(count(log, lost(liar_url)), 8u) << "it is asked less and less often: " << log;
}

TEST_F(WorkersRun, AKeyFileThatIsMissingOrEmptyIsSaidBeforeAnythingIsWritten) {
  std::ofstream(path("empty")) << "# nothing\n";
  for (const auto& [file, words] : {std::pair{"empty", "the file holds no key"}, {"missing", "missing"}}) {
    const Finished refused = run_hone(with("run", {"http://127.0.0.1:9"}, 1, {"rollout.worker_key_file=" + path(file).string()}));
    EXPECT_EQ(refused.code, 1) << refused.err;
    EXPECT_NE(refused.err.find(words), std::string::npos) << refused.err;
    EXPECT_FALSE(fs::exists(path("run"))) << refused.err;
  }
}

TEST_F(WorkersRun, AWrongKeyStopsTheRunWhereNobodyElseWrites) {
  std::ofstream(path("keys")) << "sesame\n";
  std::ofstream(path("wrong")) << "open\n";
  const WorkerProcess closed("127.0.0.1:0", {"--api-key-file", path("keys")}), open("127.0.0.1:0", {"--api-key-file", path("wrong")});
  const std::string key = "rollout.worker_key_file=" + path("wrong").string();
  Process alone(with("alone", {closed.url()}, 1, {key}));
  ASSERT_TRUE(alone.ends_within(15)) << alone.err();
  const Finished stopped = alone.wait();
  EXPECT_EQ(stopped.code, 1);
  EXPECT_NE(stopped.err.find(concat("; ", closed.url(), ": a key is needed")), std::string::npos) << stopped.err;
  Process learner(with("run", {closed.url(), open.url()}, 3, {key}));
  const std::string log = expect_ends(learner, "run", 30);
  EXPECT_NE(log.find(lost(closed.url()) + "a key is needed"), std::string::npos) << log;
}

TEST_F(WorkersRun, WithoutAnyWorkerStopsInTimeAndGoesOnOnceTheyAreBack) {
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
  for (const std::string& name : {first, second}) EXPECT_NE(stopped.err.find("http://" + name + ": ", error), std::string::npos) << stopped.err;
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
    EXPECT_EQ(end_at_checkpoint(with(name, {one.url(), two.url()}, 5, ahead), path(name), "grpo/step-6", SIGKILL).code, 128 + SIGKILL);
    EXPECT_FALSE(fs::exists(path(name) / "checkpoints" / last));
    const Finished resumed = run_hone({"run", "--resume", path(name).string()});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(count(resumed.err, "is lost"), 0u) << resumed.err;
    expect_same_checkpoints(here, path(name), {last + "/model.safetensors", last + "/trainer/trainer.safetensors"});
    EXPECT_EQ(sum_of(here, "reward"), sum_of(path(name), "reward"));
  }
}

TEST(WorkersLearning, RepliesOfThreeWorkersTeachAsWellAsTheLearnersOwn) {
  HONE_SHARED_OR_SKIP(data, "data");
  const WorkerProcess one, two, three;
  const std::vector<std::string> settings = {"stage.0.steps=40", "stage.0.lr_scheduler_type=constant"};
  const auto reached = [&](std::vector<std::string> more) {
    more.insert(more.end(), settings.begin(), settings.end());
    return RecipeRun(data, "rl/async", more).first_and_last("reward", 10).second;
  };
  const double own = reached({"stage.0.max_staleness=0"});
  const double theirs = reached({"stage.0.max_staleness=1", "stage.0.deterministic=false", "rollout.worker_key_file=" + key_file(),
                                 concat("rollout.workers=[\"", one.url(), "\", \"", two.url(), "\", \"", three.url(), "\"]")});
  EXPECT_GT(own, 0.06);
  EXPECT_GT(theirs, 0.8 * own);
}

}  // namespace
}  // namespace hone::test
