// A worker on a real socket, driven by a pool or by single messages: its completions are the engine's bit for bit, and
// its weights are always complete.
#include "rollout/remote/worker.h"

#include <chrono>
#include <limits>
#include <thread>

#include "model/token_logprobs.h"
#include "tests/rollout/remote/by_hand_learner.h"
#include "tests/support/support.h"
#include "tests/support/tcp_proxy.h"

namespace hone::test {
namespace {

using WorkerTest = WorkerFixture;

TEST_F(WorkerTest, CompletionsAreTheEnginesBitForBitWithOneWorkerAndWithThree) {
  for (int i = 0; i < 3; ++i) start();
  const Completions want = expected(requests(), 4);
  for (const std::vector<int64_t>& ports :
       {std::vector<int64_t>{workers[0]->port()}, {workers[0]->port(), workers[1]->port(), workers[2]->port()}}) {
    const auto from = pool(ports);
    from->set_policy_version(4);
    EXPECT_EQ(from->version(), 4);
    expect_bits(generate(*from, requests()), want);
    EXPECT_EQ(from->metrics().at("workers/alive"), static_cast<double>(ports.size()));
  }
}

TEST_F(WorkerTest, NewWeightsChangeCompletions) {
  start();
  const auto from = pool({workers[0]->port()});
  Completions before;
  for (int64_t version = 0; version < 3; ++version) {
    from->set_policy_version(version);
    const Completions now = generate(*from, requests(5));
    expect_bits(now, expected(requests(5), version));
    EXPECT_TRUE(version == 0 || now[0][0].logp != before[0][0].logp);
    before = now;
    change(static_cast<uint64_t>(version));
  }
}

TEST_F(WorkerTest, EachTokenIsSampledByItsVersionAcrossAWeightUpdate) {
  engine.max_sequences = 2;
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.push_weights(*snapshot(0));
  std::vector<GenerationRequest> submitted = requests(1);
  submitted[0].n = 16;
  submitted[0].sampling = {.max_tokens = 480, .ignore_eos = true, .stop = {}, .stop_ids = {}};
  WorkerPoll next = Learner::poll(1, 0, submitted);
  WorkerPollResult report = learner.take(next);
  ASSERT_TRUE(soon([&] {
    report = learner.take(Learner::poll(report.number + 1, 0));
    return report.computed_tokens > 20;
  }));
  ASSERT_TRUE(report.finished.empty());
  const std::unique_ptr<Model> old = model->same_shape();
  old->allocate(context, DType::f32, false);
  context.copy(old->flat_values(), model->flat_values());
  change(4);
  learner.push_weights(*snapshot(1));
  while (report.finished.empty()) {
    next = Learner::poll(report.number + 1, 1);
    next.wait = 1;
    report = learner.take(next);
  }
  int64_t of_both = 0;
  for (const CompletionOutput& completion : report.finished.at(0).completions) {
    std::vector<std::vector<int32_t>> text{submitted[0].prompt};
    text[0].insert(text[0].end(), completion.ids.begin(), completion.ids.end());
    for (const int64_t version : {0, 1}) {
      const TokenLogprobs scores =
          compute_logprobs(context, version == 0 ? *old : *model, text, {.temperature = 1}).front();
      for (size_t t = 0; t < completion.ids.size(); ++t)
        ASSERT_TRUE(completion.versions[t] != version ||
                    completion.logp[t] == scores.logp[submitted[0].prompt.size() + t])
            << version << " at " << t;
    }
    EXPECT_TRUE(std::ranges::is_sorted(completion.versions));
    of_both += completion.versions.front() == 0 && completion.versions.back() == 1;
  }
  EXPECT_GT(of_both, 0);
}

TEST_F(WorkerTest, OnlyChangedChunksAreSent) {
  use_two_chunks();
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  const auto first = snapshot(0);
  EXPECT_EQ(learner.commit(*first), (std::vector<int64_t>{0, 1}));
  learner.push_weights(*first);
  model->flat_values().as<float>().back() += 1;
  const auto second = snapshot(1);
  EXPECT_EQ(learner.commit(*second), std::vector<int64_t>{1});
  learner.push_weights(*second);
  learner.join(setup());
  EXPECT_TRUE(learner.commit(*second).empty()) << "a learner that joins again sends nothing twice";
  expect_bits(learner.take_all(1, 1, requests(3)), expected(requests(3), 1));
}

TEST_F(WorkerTest, HalfReceivedWeightsAreNeverServed) {
  use_two_chunks();
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  const auto old = snapshot(0);
  learner.send(*old, 0);
  EXPECT_EQ(learner.commit(*old), std::vector<int64_t>{1});
  learner.expect_rejected("turn", Learner::poll(1, 0, requests(1)).to_json().dump(), 409, "old_weights");
  learner.push_weights(*old);
  const Completions want = expected(requests(4), 0);
  change(8);
  const auto fresh = snapshot(1);
  learner.send(*fresh, 0);
  EXPECT_EQ(learner.commit(*fresh), std::vector<int64_t>{1});
  learner.expect_rejected("turn", Learner::poll(1, 1, requests(1)).to_json().dump(), 409, "old_weights");
  expect_bits(learner.take_all(1, 0, requests(4)), want);
  learner.push_weights(*fresh);
  WorkerPoll again = Learner::poll(learner.last_poll + 1, 1, requests(4));
  expect_bits(learner.take_all(again.number, 1, requests(4)), expected(requests(4), 1));
}

TEST_F(WorkerTest, UnderAdaptersTheBaseIsSentOnce) {
  use_adapters();
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.push_weights(*snapshot(0));
  expect_bits(learner.take_all(1, 0, requests(4)), expected(requests(4), 0));
  change(2);
  EXPECT_EQ(learner.commit(*snapshot(1)), std::vector<int64_t>{1}) << "the adapters' block alone";
  const auto from = pool({workers[0]->port()});  // of the same run: it replaces the session
  from->set_policy_version(1);
  expect_bits(generate(*from, requests()), expected(requests(), 1));
  learner.expect_rejected("turn", Learner::poll(learner.last_poll + 1, 0).to_json().dump(), 409, "unknown_session");
}

TEST_F(WorkerTest, ARepeatedPollGetsTheSameResponseAndSubmitsNothing) {
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.push_weights(*snapshot(0));
  WorkerPoll turn = Learner::poll(1, 0, requests(1));
  turn.wait = 1;
  const std::string body = turn.to_json().dump();
  const std::string first = learner.post("turn", body).body;
  ASSERT_EQ(WorkerPollResult::parse(parse_json(first, "")).finished.size(), 1u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(learner.post("turn", body).body, first);
  const auto computed =
      static_cast<int64_t>(requests(1)[0].prompt.size()) + 3;  // counted at the end of the engine's step
  WorkerPollResult next;
  EXPECT_TRUE(soon([&] {
    next = learner.take(Learner::poll(next.number == 0 ? 2 : next.number + 1, 0));
    EXPECT_TRUE(next.finished.empty()) << "the turn after says that it came";
    return next.computed_tokens >= computed;
  }));
  EXPECT_EQ(next.computed_tokens, computed);
  learner.expect_rejected("turn", body, 409, "unknown_session");
  learner.expect_rejected("turn", Learner::poll(next.number + 2, 0).to_json().dump(), 409, "unknown_session");
  EXPECT_EQ(learner.take(Learner::poll(next.number + 1, 0)).number, next.number + 1);
}

TEST_F(WorkerTest, CancelledRequestsAreNotReported) {
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.push_weights(*snapshot(0));
  std::vector<GenerationRequest> submitted = requests(2);
  submitted[0].sampling = {.max_tokens = 400, .ignore_eos = true, .stop = {}, .stop_ids = {}};
  submitted[0].n = 3;
  std::vector<uint64_t> reported;
  for (int64_t number = 1; number < 50 && (number < 3 || reported.empty()); ++number) {
    WorkerPoll next = number == 1 ? Learner::poll(1, 0, submitted) : Learner::poll(number, 0);
    if (number == 2) next.cancel = {1, 99};
    next.wait = number == 1 ? 0 : 1;
    for (const WorkerPollResult::Finished& done : learner.take(next).finished) reported.push_back(done.ticket);
  }
  EXPECT_EQ(reported, std::vector<uint64_t>{2});
  EXPECT_TRUE(soon([&] {
    return HttpClient(workers[0]->port()).get("/metrics").body.find("\nhone_worker_replies 0\n") != std::string::npos;
  }));
}

TEST_F(WorkerTest, ARequestThatNeverFitsFailsWithTheEnginesReason) {
  start();
  std::vector<GenerationRequest> submitted = requests(3);
  submitted[1].prompt.assign(600, 65);
  const auto from = pool({workers[0]->port()});
  from->set_policy_version(0);
  const Completions got = generate(*from, submitted);
  expect_bits(got, expected(submitted, 0));
  EXPECT_TRUE(got[1][0].failed);
}

TEST_F(WorkerTest, IfItsEngineFailsItReportsWhyAndIsLost) {
  start();
  std::ranges::fill(model->lm_head().value.as<float>(), std::numeric_limits<float>::quiet_NaN());
  const auto from = pool({workers[0]->port()}, 0.5);
  from->set_policy_version(0);
  try {
    generate(*from, requests(1));
    ADD_FAILURE() << "there is a reply of NaN";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("NaN"), std::string::npos) << error.what();
  }
}

TEST_F(WorkerTest, AWorkerThatEndsInTheMiddleLosesNothing) {
  for (int i = 0; i < 2; ++i) start();
  const Completions want = expected(requests(24), 0);
  const auto from = pool({workers[0]->port(), workers[1]->port()}, 5);
  from->set_policy_version(0);
  Completions got(want.size());
  const std::vector<GenerationRequest> submitted = requests(24);
  int64_t whole = 0;
  for (size_t i = 0; i < submitted.size(); ++i)
    from->submit(submitted[i], [&, i](uint64_t, std::vector<CompletionOutput> completions) {
      EXPECT_TRUE(got[i].empty());
      got[i] = std::move(completions);
      ++whole;
    });
  while (whole == 0) ASSERT_TRUE(from->step());
  workers[0].reset();
  while (from->step()) {}
  expect_bits(got, want);
}

TEST_F(WorkerTest, ANetworkThatDamagesAndBreaksMessagesLosesNothing) {
  start();
  TcpProxy proxy(workers[0]->port());
  const auto from = pool({proxy.port()}, 10);
  std::jthread network([&](const std::stop_token& end) {
    for (uint64_t turn = 0; !end.stop_requested(); ++turn) {
      proxy.set(turn % 4 == 1 ? TcpProxy::Mode::garble : turn % 4 == 3 ? TcpProxy::Mode::refuse : TcpProxy::Mode::pass);
      std::this_thread::sleep_for(std::chrono::milliseconds(turn % 2 ? 15 : 40));
    }
  });
  for (int64_t version = 0; version < 1000 && proxy.connections() < 6; ++version) {  // until it has broken often enough
    from->set_policy_version(version);
    expect_bits(generate(*from, requests(12)), expected(requests(12), version));
    change(static_cast<uint64_t>(version));
  }
  EXPECT_GE(proxy.connections(), 6);
}

TEST_F(WorkerTest, HealthAndMetricsSayWhatItDoes) {
  start();
  HttpClient client(workers[0]->port());
  EXPECT_TRUE(parse_json(client.get("/health").body, "").at("run").is_null());
  EXPECT_NE(client.get("/metrics").body.find("\nhone_worker_weights_version -1\n"), std::string::npos);
  Learner learner(workers[0]->port());
  learner.join(setup("/runs/a"));
  learner.push_weights(*snapshot(6));
  learner.take_all(1, 6, requests(2));
  EXPECT_EQ(parse_json(client.get("/health").body, "").at("run").as_string(), "/runs/a");
  const std::string text = client.get("/metrics").body;
  EXPECT_NE(text.find("\nhone_worker_weights_version 6\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("\nhone_worker_generated_tokens_total 0\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace hone::test
