// What a worker rejects, and that any input leaves it usable.
#include <fstream>

#include "core/base/rng.h"
#include "tests/rollout/remote/by_hand_learner.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

using WorkerTest = WorkerFixture;

TEST_F(WorkerTest, AnEndedSessionIsRejected) {
  start();
  Learner learner(workers[0]->port());
  for (const char* what : {"turn", "commit", "weights", "link", "receive"})
    learner.expect_rejected(what, "{}", 409, "unknown_session");
  learner.join(setup());
  const std::string before = learner.session;
  learner.join(setup());
  EXPECT_NE(learner.session, before);
  learner.session = before;
  learner.expect_rejected("turn", Learner::poll(1, -1).to_json().dump(), 409, "unknown_session");
}

TEST_F(WorkerTest, OneLearnerAtATimeUntilItsLeaseEnds) {
  start({.lease = 1});
  Learner one(workers[0]->port()), two(workers[0]->port());
  one.join(setup("/one"));
  one.push_weights(*snapshot(0));
  two.expect_rejected("join", setup("/two").to_json().dump(), 409, "busy");
  EXPECT_TRUE(soon([&] { return two.post("join", setup("/two").to_json().dump()).status == 200; }, 5));
  one.expect_rejected("turn", Learner::poll(1, 0).to_json().dump(), 409, "unknown_session");
  two.join(setup("/two"));
  EXPECT_TRUE(two.commit(*snapshot(0)).empty()) << "the same setup keeps what is there";
}

TEST_F(WorkerTest, AnotherSetupMakesAnotherModel) {
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.push_weights(*snapshot(0));
  use_adapters();
  learner.join(setup());
  EXPECT_EQ(learner.commit(*snapshot(0)), (std::vector<int64_t>{0, 1}));
  learner.push_weights(*snapshot(0));
  expect_bits(learner.take_all(1, 0, requests(2)), expected(requests(2), 0));
}

TEST_F(WorkerTest, ADeviceOfAnotherKindIsRejected) {
  start();
  WorkerSetup other = setup();
  other.device = DeviceKind::cuda;
  Learner learner(workers[0]->port());
  const HttpAnswer answer = learner.post("join", other.to_json().dump());
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("the learner computes on cuda, this worker on cpu"), std::string::npos) << answer.body;
  learner.join(setup());
}

TEST_F(WorkerTest, WithoutAKeyRequestsAreRejected) {
  const TemporaryFolder folder;
  const std::string keys = (folder.path() / "keys").string(), wrong = (folder.path() / "wrong").string();
  std::ofstream(keys) << "# of the cluster\n\nsesame\n";
  std::ofstream(wrong) << "open\n";
  start({.api_key_file = keys});
  const std::string join = setup().to_json().dump();
  for (const char* header : {"", "Authorization: Bearer open\r\n", "Authorization: sesame\r\n"})
    Learner(workers[0]->port())
        .expect_rejected("join", join, 401, "invalid_api_key",
                         header);  // before the body is read, which ends the connection
  EXPECT_EQ(Learner(workers[0]->port()).post("join", join, "Authorization: Bearer sesame\r\n").status, 200);
  HttpClient other(workers[0]->port());
  EXPECT_EQ(other.get("/health").status, 200);
  EXPECT_EQ(other.get("/metrics").status, 401);
  {
    const auto from = pool({workers[0]->port()}, 20, keys);
    from->set_policy_version(0);
    expect_bits(generate(*from, requests(2)), expected(requests(2), 0));
  }
  const auto from = pool({workers[0]->port()}, 0.5, wrong);
  from->set_policy_version(0);
  try {
    generate(*from, requests(1));
    ADD_FAILURE() << "a wrong key opens it";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(concat("; ", url(workers[0]->port()), ": an API key is needed")),
              std::string::npos)
        << error.what();
  }
}

TEST_F(WorkerTest, ABodyWithAWrongDigestIsRejectedAndChangesNothing) {
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  const auto old = snapshot(0);
  learner.push_weights(*old);
  change(3);
  std::string bytes(snapshot(1)->chunks()[0].bytes);
  HttpClient client(workers[0]->port());
  for (const std::string& digest : {base64(sha256("other")), std::string("AAAA"), std::string()}) {
    const std::string header = digest.empty() ? "" : concat(digest_header, ": ", digest, "\r\n");
    const HttpAnswer answer =
        client.post("/v1/worker/weights", bytes,
                    concat(header, session_header, ": ", learner.session, "\r\n", chunk_header, ": 0\r\n"));
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(parse_json(answer.body, "").at("error").at("code").as_string(), "damaged");
  }
  EXPECT_TRUE(learner.commit(*old).empty());
}

TEST_F(WorkerTest, InvalidChunksAreRejected) {
  start();
  Learner learner(workers[0]->port());
  learner.join(setup());
  const std::string whole(snapshot(0)->chunks()[0].bytes);
  for (const char* chunk : {"-1", "1", "99999999999999999999", "x", "", "0x"})
    learner.expect_rejected("weights", whole, 400, "", concat(chunk_header, ": ", chunk, "\r\n"));
  learner.expect_rejected("weights", whole, 400, "");
  for (const std::string& bytes : {std::string(), whole.substr(1), whole + "x"})
    learner.expect_rejected("weights", bytes, 400, "", concat(chunk_header, ": 0\r\n"));
  for (const char* digests : {R"([])", R"(["AAAA"])", R"(["x"])", R"([1])", R"({})", R"(null)"})
    learner.expect_rejected("commit", concat(R"({"version": 0, "landed": false, "digests": )", digests, "}"), 400, "");
  learner.expect_rejected("commit", R"({"version": 0, "landed": true, "digests": []})", 409, "no_landing");
  EXPECT_NE(learner.post("receive", "{}").status, 200) << "no device link is open";
  learner.push_weights(*snapshot(0));
}

TEST_F(WorkerTest, AnyInputLeavesTheWorkerUsable) {
  start({.http = {.max_body_bytes = int64_t{1} << 20}});
  const std::map<std::string, std::string> messages = {{"join", setup().to_json().dump()},
                                                       {"commit", Learner::commit_body(*snapshot(0))},
                                                       {"turn", Learner::poll(1, 0, requests(4)).to_json().dump()},
                                                       {"link", R"({"kind": "nccl", "id": "AAAA"})"},
                                                       {"receive", "{}"},
                                                       {"weights", "bytes"}};
  const std::string pieces[] = {"-1", "0", "null", "[]", "{}", "\"\"", "\"AAAA\"", "true", "1e99"};
  for (const auto& [what, text] : messages) {
    Learner learner(workers[0]->port());
    learner.join(setup());
    if (what == "turn") learner.push_weights(*snapshot(0));
    for (uint64_t round = 0; round < 150; ++round) {
      Rng random(stream_of(what.c_str()), round);
      std::string body = text;
      for (uint64_t change = 0; change <= random.below(3) && !body.empty(); ++change) {
        // Replaces a whole value by a number, so that no size grows.
        const size_t at = random.below(body.size()), colon = body.find_first_of(":,[", at),
                     end = body.find_first_of(",]}", colon + 1);
        if (random.below(3) == 0 && end != std::string::npos)
          body.replace(colon + 1, end - colon - 1, pieces[random.below(std::size(pieces))]);
        else if (random.below(2) == 0)
          body.erase(at, 1 + random.below(20));
        else if (body[at] < '0' || body[at] > '9')
          body[at] = static_cast<char>(random.below(2) ? random.below(256) : '"');
      }
      const HttpAnswer answer =
          learner.post(what, body, what == "weights" ? concat(chunk_header, ": ", random.below(3), "\r\n") : "");
      ASSERT_TRUE(answer.status == 200 || (answer.status >= 400 && answer.status < 500))
          << what << " " << body << " -> " << answer.status << " " << answer.body;
      if (what == "join" && answer.status == 200)
        learner.session = parse_json(answer.body, "").at("session").as_string();
      if (parse_json(answer.body, "").find("error") && answer.body.find("unknown_session") != std::string::npos) {
        learner.join(setup());
        if (what == "turn") learner.push_weights(*snapshot(0));
      }
    }
  }
  HttpClient client(workers[0]->port());
  EXPECT_EQ(client.get("/v1/worker/turn").status, 405);
  EXPECT_EQ(client.post("/v1/worker/other", "").status, 404);
  EXPECT_EQ(HttpClient(workers[0]->port()).post("/v1/worker/weights", std::string((size_t{1} << 20) + 1, 'x')).status,
            413);
  Learner learner(workers[0]->port());
  learner.join(setup());
  learner.push_weights(*snapshot(0));
  expect_bits(learner.take_all(1, 0, requests(4)), expected(requests(4), 0));
}

}  // namespace
}  // namespace hone::test
