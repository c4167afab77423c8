// A worker on a real socket, asked by a pool or by hand: its replies are the engine's bit for bit, its weights are whole, and whatever it is sent, it
// serves the next one.
#include "rollout/worker.h"

#include <cstring>
#include <fstream>
#include <limits>

#include "core/model/score.h"
#include "tests/rollout/worker_fixture.h"
#include "tests/support/http_client.h"
#include "tests/support/support.h"
#include "tests/support/tcp_proxy.h"

namespace hone::test {
namespace {

using WorkerTest = WorkerFixture;

// A learner that says what the test says.
class Learner {
 public:
  explicit Learner(int64_t port) : http_(port) {}
  // The answer to a message with its digest.
  HttpAnswer post(const std::string& what, const std::string& body, const std::string& more_headers = "") {
    const HttpAnswer answer = http_.post(
        "/v1/worker/" + what, body, concat(digest_header, ": ", base64(sha256(body)), "\r\n", session_header, ": ", session, "\r\n", more_headers));
    EXPECT_TRUE(answer.status != 200 || answer.headers.at(digest_header) == base64(sha256(answer.body))) << what;
    return answer;
  }
  Json ask(const std::string& what, const std::string& body, const std::string& more_headers = "") {
    const HttpAnswer answer = post(what, body, more_headers);
    EXPECT_EQ(answer.status, 200) << what << ": " << answer.body;
    return parse_json(answer.body, what);
  }
  void refused(const std::string& what, const std::string& body, int status, const std::string& code, const std::string& more_headers = "") {
    const HttpAnswer answer = post(what, body, more_headers);
    EXPECT_EQ(answer.status, status) << what << ": " << answer.body;
    const Json error = parse_json(answer.body, what).at("error");
    const Json& said = error.at("code");
    EXPECT_EQ(said.is_string() ? said.as_string() : "", code) << answer.body;
    EXPECT_FALSE(error.at("message").as_string().empty());
  }
  Json join(const WorkerSetup& setup) {
    const Json answer = ask("join", setup.to_json().dump());
    session = answer.at("session").as_string();
    return answer;
  }
  std::vector<int64_t> commit(const WeightImage& image) {
    std::vector<int64_t> out;
    const Json answer = ask("commit", commit_body(image));
    for (const Json& block : answer.at("missing").as_array()) out.push_back(block.as_int());
    return out;
  }
  static std::string commit_body(const WeightImage& image) {
    JsonArray digests;
    for (const WeightBlocks::Block& block : image.blocks()) digests.emplace_back(base64(block.digest));
    return Json(JsonObject{{"version", image.version()}, {"landed", false}, {"digests", digests}}).dump();
  }
  void send(const WeightImage& image, int64_t block) {
    ask("weights", std::string(image.blocks()[static_cast<size_t>(block)].bytes), concat(block_header, ": ", block, "\r\n"));
  }
  void bring(const WeightImage& image) {
    for (const int64_t block : commit(image)) send(image, block);
    EXPECT_TRUE(commit(image).empty());
  }
  static WorkerTurn turn(int64_t number, int64_t version, const std::vector<Request>& asked = {}) {
    WorkerTurn out{.number = number, .wait = 0, .version = version, .submit = {}, .cancel = {}};
    for (size_t i = 0; i < asked.size(); ++i) out.submit.push_back({.ticket = i + 1, .request = asked[i]});
    return out;
  }
  WorkerReport take(const WorkerTurn& turn) { return WorkerReport::parse(ask("turn", turn.to_json().dump())); }
  // Turns from this one on, until all that was asked is whole.
  Replies take_all(int64_t number, int64_t version, const std::vector<Request>& asked) {
    Replies out(asked.size());
    WorkerTurn next = turn(number, version, asked);
    for (size_t whole = 0; whole < asked.size();) {
      next.wait = 1;
      for (WorkerReport::Done& done : take(next).finished) out.at(done.ticket - 1) = std::move(done.replies), ++whole;
      next = turn(next.number + 1, version);
    }
    last_turn = next.number - 1;
    return out;
  }

  std::string session;
  int64_t last_turn = 0;

 private:
  HttpClient http_;
};

TEST_F(WorkerTest, RepliesAreTheEnginesBitForBitWithOneWorkerAndWithThree) {
  for (int i = 0; i < 3; ++i) start();
  const Replies want = expected(requests(), 4);
  for (const std::vector<int64_t>& ports : {std::vector<int64_t>{workers[0]->port()}, {workers[0]->port(), workers[1]->port(), workers[2]->port()}}) {
    const auto from = pool(ports);
    from->publish(4);
    EXPECT_EQ(from->version(), 4);
    expect_bits(generate(*from, requests()), want);
    EXPECT_EQ(from->metrics().at("workers/alive"), static_cast<double>(ports.size()));
  }
}

TEST_F(WorkerTest, NewWeightsChangeReplies) {
  start();
  const auto from = pool({workers[0]->port()});
  Replies before;
  for (int64_t version = 0; version < 3; ++version) {
    from->publish(version);
    const Replies now = generate(*from, requests(5));
    expect_bits(now, expected(requests(5), version));
    EXPECT_TRUE(version == 0 || now[0][0].logp != before[0][0].logp);
    before = now;
    change(static_cast<uint64_t>(version));
  }
}

TEST_F(WorkerTest, ATokenOfAReplyThatGoesOnUnderNewWeightsIsDrawnByTheVersionItNames) {
  engine.max_sequences = 2;
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.bring(*image(0));
  std::vector<Request> asked = requests(1);
  asked[0].n = 16;
  asked[0].sampling = {.max_tokens = 480, .ignore_eos = true, .stop = {}, .stop_ids = {}};
  WorkerTurn next = Learner::turn(1, 0, asked);
  WorkerReport report = learner.take(next);
  ASSERT_TRUE(soon([&] {
    report = learner.take(Learner::turn(report.number + 1, 0));
    return report.computed_tokens > 20;
  }));
  ASSERT_TRUE(report.finished.empty());
  const std::unique_ptr<Model> old = model->same_shape();
  old->allocate(context, DType::f32, false);
  context.copy(old->flat_values(), model->flat_values());
  change(4);
  learner.bring(*image(1));
  while (report.finished.empty()) {
    next = Learner::turn(report.number + 1, 1);
    next.wait = 1;
    report = learner.take(next);
  }
  int64_t of_both = 0;
  for (const Reply& reply : report.finished.at(0).replies) {
    std::vector<std::vector<int32_t>> text{asked[0].prompt};
    text[0].insert(text[0].end(), reply.ids.begin(), reply.ids.end());
    for (const int64_t version : {0, 1}) {
      const TokenScores scores = score_sequences(context, version == 0 ? *old : *model, text, {.temperature = 1}).front();
      for (size_t t = 0; t < reply.ids.size(); ++t)
        ASSERT_TRUE(reply.versions[t] != version || reply.logp[t] == scores.logp[asked[0].prompt.size() + t]) << version << " at " << t;
    }
    EXPECT_TRUE(std::ranges::is_sorted(reply.versions));
    of_both += reply.versions.front() == 0 && reply.versions.back() == 1;
  }
  EXPECT_GT(of_both, 0);
}

TEST_F(WorkerTest, OfSeveralBlocksThoseThatChangedAreAskedFor) {
  use_two_blocks();
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  const auto first = image(0);
  EXPECT_EQ(learner.commit(*first), (std::vector<int64_t>{0, 1}));
  learner.bring(*first);
  model->flat_values().as<float>().back() += 1;
  const auto second = image(1);
  EXPECT_EQ(learner.commit(*second), std::vector<int64_t>{1});
  learner.bring(*second);
  learner.join(setup());
  EXPECT_TRUE(learner.commit(*second).empty()) << "a learner that joins again sends nothing twice";
  expect_bits(learner.take_all(1, 1, requests(3)), expected(requests(3), 1));
}

TEST_F(WorkerTest, HalfReceivedWeightsAreNeverServed) {
  use_two_blocks();
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  const auto old = image(0);
  learner.send(*old, 0);
  EXPECT_EQ(learner.commit(*old), std::vector<int64_t>{1});
  learner.refused("turn", Learner::turn(1, 0, requests(1)).to_json().dump(), 409, "old_weights");
  learner.bring(*old);
  const Replies want = expected(requests(4), 0);
  change(8);
  const auto fresh = image(1);
  learner.send(*fresh, 0);
  EXPECT_EQ(learner.commit(*fresh), std::vector<int64_t>{1});
  learner.refused("turn", Learner::turn(1, 1, requests(1)).to_json().dump(), 409, "old_weights");
  expect_bits(learner.take_all(1, 0, requests(4)), want);
  learner.bring(*fresh);
  WorkerTurn again = Learner::turn(learner.last_turn + 1, 1, requests(4));
  expect_bits(learner.take_all(again.number, 1, requests(4)), expected(requests(4), 1));
}

TEST_F(WorkerTest, UnderAdaptersTheBaseIsSentOnce) {
  use_adapters();
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.bring(*image(0));
  expect_bits(learner.take_all(1, 0, requests(4)), expected(requests(4), 0));
  change(2);
  EXPECT_EQ(learner.commit(*image(1)), std::vector<int64_t>{1}) << "the adapters' block alone";
  const auto from = pool({workers[0]->port()});  // of the same run: it takes over
  from->publish(1);
  expect_bits(generate(*from, requests()), expected(requests(), 1));
  learner.refused("turn", Learner::turn(learner.last_turn + 1, 0).to_json().dump(), 409, "unknown_session");
}

TEST_F(WorkerTest, TheSameTurnAgainIsAnsweredTheSameAndAsksNothingTwice) {
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.bring(*image(0));
  WorkerTurn turn = Learner::turn(1, 0, requests(1));
  turn.wait = 1;
  const std::string body = turn.to_json().dump();
  const std::string first = learner.post("turn", body).body;
  ASSERT_EQ(WorkerReport::parse(parse_json(first, "")).finished.size(), 1u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(learner.post("turn", body).body, first);
  const auto computed = static_cast<int64_t>(requests(1)[0].prompt.size()) + 3;  // which the engine counts when its step ends
  WorkerReport next;
  EXPECT_TRUE(soon([&] {
    next = learner.take(Learner::turn(next.number == 0 ? 2 : next.number + 1, 0));
    EXPECT_TRUE(next.finished.empty()) << "the turn after says that it came";
    return next.computed_tokens >= computed;
  }));
  EXPECT_EQ(next.computed_tokens, computed);
  learner.refused("turn", body, 409, "unknown_session");
  learner.refused("turn", Learner::turn(next.number + 2, 0).to_json().dump(), 409, "unknown_session");
  EXPECT_EQ(learner.take(Learner::turn(next.number + 1, 0)).number, next.number + 1);
}

TEST_F(WorkerTest, WhatIsCancelledIsNotReported) {
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.bring(*image(0));
  std::vector<Request> asked = requests(2);
  asked[0].sampling = {.max_tokens = 400, .ignore_eos = true, .stop = {}, .stop_ids = {}};
  asked[0].n = 3;
  std::vector<uint64_t> reported;
  for (int64_t number = 1; number < 50 && (number < 3 || reported.empty()); ++number) {
    WorkerTurn next = number == 1 ? Learner::turn(1, 0, asked) : Learner::turn(number, 0);
    if (number == 2) next.cancel = {1, 99};
    next.wait = number == 1 ? 0 : 1;
    for (const WorkerReport::Done& done : learner.take(next).finished) reported.push_back(done.ticket);
  }
  EXPECT_EQ(reported, std::vector<uint64_t>{2});
  EXPECT_TRUE(soon([&] { return HttpClient(workers[0]->port()).get("/metrics").body.find("\nhone_worker_replies 0\n") != std::string::npos; }));
}

TEST_F(WorkerTest, ARequestThatNeverFitsIsAFailedReplyAsTheEngineSays) {
  start();
  std::vector<Request> asked = requests(3);
  asked[1].prompt.assign(600, 65);
  const auto from = pool({workers[0]->port()});
  from->publish(0);
  const Replies got = generate(*from, asked);
  expect_bits(got, expected(asked, 0));
  EXPECT_TRUE(got[1][0].failed);
}

TEST_F(WorkerTest, ASessionThatHasEndedIsRefused) {
  start();
  Learner learner(workers[0]->port());
  for (const char* what : {"turn", "commit", "weights", "link", "receive"}) learner.refused(what, "{}", 409, "unknown_session");
  learner.join(setup());
  const std::string before = learner.session;
  learner.join(setup());
  EXPECT_NE(learner.session, before);
  learner.session = before;
  learner.refused("turn", Learner::turn(1, -1).to_json().dump(), 409, "unknown_session");
}

TEST_F(WorkerTest, OneLearnerAtATimeUntilItIsSilentForTooLong) {
  start({.lease = 1});
  Learner one(workers[0]->port()), two(workers[0]->port());
  one.join(setup("/one"));
  one.bring(*image(0));
  two.refused("join", setup("/two").to_json().dump(), 409, "busy");
  EXPECT_TRUE(soon([&] { return two.post("join", setup("/two").to_json().dump()).status == 200; }, 5));
  one.refused("turn", Learner::turn(1, 0).to_json().dump(), 409, "unknown_session");
  two.join(setup("/two"));
  EXPECT_TRUE(two.commit(*image(0)).empty()) << "the same setup keeps what is there";
}

TEST_F(WorkerTest, AnotherSetupIsAnotherModel) {
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.bring(*image(0));
  use_adapters();
  learner.join(setup());
  EXPECT_EQ(learner.commit(*image(0)), (std::vector<int64_t>{0, 1}));
  learner.bring(*image(0));
  expect_bits(learner.take_all(1, 0, requests(2)), expected(requests(2), 0));
}

TEST_F(WorkerTest, ADeviceOfAnotherKindIsRefused) {
  start();
  WorkerSetup other = setup();
  other.device = DeviceKind::cuda;
  Learner learner(workers[0]->port());
  const HttpAnswer answer = learner.post("join", other.to_json().dump());
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("the learner computes on cuda, this worker on cpu"), std::string::npos) << answer.body;
  learner.join(setup());
}

TEST_F(WorkerTest, WithoutAKeyNothingIsSaid) {
  const TemporaryFolder folder;
  const std::string keys = (folder.path() / "keys").string(), wrong = (folder.path() / "wrong").string();
  std::ofstream(keys) << "# of the cluster\n\nsesame\n";
  std::ofstream(wrong) << "open\n";
  start({.api_key_file = keys});
  const std::string join = setup().to_json().dump();
  for (const char* header : {"", "Authorization: Bearer open\r\n", "Authorization: sesame\r\n"})
    Learner(workers[0]->port()).refused("join", join, 401, "invalid_api_key", header);  // before the body is read, which ends the connection
  EXPECT_EQ(Learner(workers[0]->port()).post("join", join, "Authorization: Bearer sesame\r\n").status, 200);
  HttpClient other(workers[0]->port());
  EXPECT_EQ(other.get("/health").status, 200);
  EXPECT_EQ(other.get("/metrics").status, 401);
  {
    const auto from = pool({workers[0]->port()}, 20, keys);
    from->publish(0);
    expect_bits(generate(*from, requests(2)), expected(requests(2), 0));
  }
  const auto from = pool({workers[0]->port()}, 0.5, wrong);
  from->publish(0);
  try {
    generate(*from, requests(1));
    ADD_FAILURE() << "a wrong key opens it";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(concat("; ", url(workers[0]->port()), ": a key is needed")), std::string::npos) << error.what();
  }
}

TEST_F(WorkerTest, ABodyThatIsNotItsDigestsIsRefusedAndChangesNothing) {
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  const auto old = image(0);
  learner.bring(*old);
  change(3);
  std::string bytes(image(1)->blocks()[0].bytes);
  HttpClient client(workers[0]->port());
  for (const std::string& digest : {base64(sha256("other")), std::string("AAAA"), std::string()}) {
    const std::string header = digest.empty() ? "" : concat(digest_header, ": ", digest, "\r\n");
    const HttpAnswer answer =
        client.post("/v1/worker/weights", bytes, concat(header, session_header, ": ", learner.session, "\r\n", block_header, ": 0\r\n"));
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(parse_json(answer.body, "").at("error").at("code").as_string(), "damaged");
  }
  EXPECT_TRUE(learner.commit(*old).empty());
}

TEST_F(WorkerTest, BlocksThatAreNoneAreRefused) {
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  const std::string whole(image(0)->blocks()[0].bytes);
  for (const char* block : {"-1", "1", "99999999999999999999", "x", "", "0x"})
    learner.refused("weights", whole, 400, "", concat(block_header, ": ", block, "\r\n"));
  learner.refused("weights", whole, 400, "");
  for (const std::string& bytes : {std::string(), whole.substr(1), whole + "x"})
    learner.refused("weights", bytes, 400, "", concat(block_header, ": 0\r\n"));
  for (const char* digests : {R"([])", R"(["AAAA"])", R"(["x"])", R"([1])", R"({})", R"(null)"})
    learner.refused("commit", concat(R"({"version": 0, "landed": false, "digests": )", digests, "}"), 400, "");
  learner.refused("commit", R"({"version": 0, "landed": true, "digests": []})", 409, "no_landing");
  EXPECT_NE(learner.post("receive", "{}").status, 200) << "there is no link";
  learner.bring(*image(0));
}

TEST_F(WorkerTest, WhateverItIsSentTheNextOneIsServed) {
  start({.http = {.max_body_bytes = int64_t{1} << 20}});
  const std::map<std::string, std::string> messages = {{"join", setup().to_json().dump()},
                                                       {"commit", Learner::commit_body(*image(0))},
                                                       {"turn", Learner::turn(1, 0, requests(4)).to_json().dump()},
                                                       {"link", R"({"kind": "nccl", "id": "AAAA"})"},
                                                       {"receive", "{}"},
                                                       {"weights", "bytes"}};
  const std::string pieces[] = {"-1", "0", "null", "[]", "{}", "\"\"", "\"AAAA\"", "true", "1e99"};
  for (const auto& [what, text] : messages) {
    Learner learner(workers[0]->port());
    learner.join(setup());
    if (what == "turn") learner.bring(*image(0));
    for (uint64_t round = 0; round < 150; ++round) {
      Rng random(stream_of(what.c_str()), round);
      std::string body = text;
      for (uint64_t change = 0; change <= random.below(3) && !body.empty(); ++change) {
        // A number in the place of a whole value, so that no size grows.
        const size_t at = random.below(body.size()), colon = body.find_first_of(":,[", at), end = body.find_first_of(",]}", colon + 1);
        if (random.below(3) == 0 && end != std::string::npos)
          body.replace(colon + 1, end - colon - 1, pieces[random.below(std::size(pieces))]);
        else if (random.below(2) == 0)
          body.erase(at, 1 + random.below(20));
        else if (body[at] < '0' || body[at] > '9')
          body[at] = static_cast<char>(random.below(2) ? random.below(256) : '"');
      }
      const HttpAnswer answer = learner.post(what, body, what == "weights" ? concat(block_header, ": ", random.below(3), "\r\n") : "");
      ASSERT_TRUE(answer.status == 200 || (answer.status >= 400 && answer.status < 500))
          << what << " " << body << " -> " << answer.status << " " << answer.body;
      if (what == "join" && answer.status == 200) learner.session = parse_json(answer.body, "").at("session").as_string();
      if (parse_json(answer.body, "").find("error") && answer.body.find("unknown_session") != std::string::npos) {
        learner.join(setup());
        if (what == "turn") learner.bring(*image(0));
      }
    }
  }
  HttpClient client(workers[0]->port());
  EXPECT_EQ(client.get("/v1/worker/turn").status, 405);
  EXPECT_EQ(client.post("/v1/worker/other", "").status, 404);
  EXPECT_EQ(HttpClient(workers[0]->port()).post("/v1/worker/weights", std::string((size_t{1} << 20) + 1, 'x')).status, 413);
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.bring(*image(0));
  expect_bits(learner.take_all(1, 0, requests(4)), expected(requests(4), 0));
}

TEST_F(WorkerTest, WhereItsEngineFailsItSaysWhyAndIsLost) {
  start();
  std::ranges::fill(model->head().value.as<float>(), std::numeric_limits<float>::quiet_NaN());
  const auto from = pool({workers[0]->port()}, 0.5);
  from->publish(0);
  try {
    generate(*from, requests(1));
    ADD_FAILURE() << "there is a reply of NaN";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("NaN"), std::string::npos) << error.what();
  }
}

TEST_F(WorkerTest, OneThatEndsInTheMiddleLosesNothing) {
  for (int i = 0; i < 2; ++i) start();
  const Replies want = expected(requests(24), 0);
  const auto from = pool({workers[0]->port(), workers[1]->port()}, 5);
  from->publish(0);
  Replies got(want.size());
  const std::vector<Request> asked = requests(24);
  int64_t whole = 0;
  for (size_t i = 0; i < asked.size(); ++i)
    from->submit(asked[i], [&, i](uint64_t, std::vector<Reply> replies) {
      EXPECT_TRUE(got[i].empty());
      got[i] = std::move(replies);
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
    from->publish(version);
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
  learner.bring(*image(6));
  learner.take_all(1, 6, requests(2));
  EXPECT_EQ(parse_json(client.get("/health").body, "").at("run").as_string(), "/runs/a");
  const std::string text = client.get("/metrics").body;
  EXPECT_NE(text.find("\nhone_worker_weights_version 6\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("\nhone_worker_generated_tokens_total 0\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace hone::test
