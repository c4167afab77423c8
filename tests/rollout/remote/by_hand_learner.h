#pragma once
// Learner: sends a learner's messages to a worker one by one, for tests.
#include "core/net/digest.h"
#include "tests/rollout/remote/worker_fixture.h"
#include "tests/support/http_client.h"

namespace hone::test {

// A learner without logic of its own.
class Learner {
 public:
  explicit Learner(int64_t port) : http_(port) {}
  // Posts a message with its digest.
  HttpAnswer post(const std::string& what, const std::string& body, const std::string& more_headers = "") {
    const HttpAnswer answer = http_.post(
        "/v1/worker/" + what, body,
        concat(digest_header, ": ", base64(sha256(body)), "\r\n", session_header, ": ", session, "\r\n", more_headers));
    EXPECT_TRUE(answer.status != 200 || answer.headers.at(digest_header) == base64(sha256(answer.body))) << what;
    return answer;
  }
  Json ask(const std::string& what, const std::string& body, const std::string& more_headers = "") {
    const HttpAnswer answer = post(what, body, more_headers);
    EXPECT_EQ(answer.status, 200) << what << ": " << answer.body;
    return parse_json(answer.body, what);
  }
  void expect_rejected(const std::string& what, const std::string& body, int status, const std::string& code,
                       const std::string& more_headers = "") {
    const HttpAnswer answer = post(what, body, more_headers);
    EXPECT_EQ(answer.status, status) << what << ": " << answer.body;
    const Json error = parse_json(answer.body, what).at("error");
    const Json& given = error.at("code");
    EXPECT_EQ(given.is_string() ? given.as_string() : "", code) << answer.body;
    EXPECT_FALSE(error.at("message").as_string().empty());
  }
  Json join(const WorkerSetup& setup) {
    const Json answer = ask("join", setup.to_json().dump());
    session = answer.at("session").as_string();
    return answer;
  }
  std::vector<int64_t> commit(const WeightSnapshot& snapshot) {
    std::vector<int64_t> out;
    const Json answer = ask("commit", commit_body(snapshot));
    for (const Json& chunk : answer.at("missing").as_array()) out.push_back(chunk.as_int());
    return out;
  }
  static std::string commit_body(const WeightSnapshot& snapshot) {
    JsonArray digests;
    for (const WeightChunks::Chunk& chunk : snapshot.chunks()) digests.emplace_back(base64(chunk.digest));
    return Json(JsonObject{{"version", snapshot.version()}, {"landed", false}, {"digests", digests}}).dump();
  }
  void send(const WeightSnapshot& snapshot, int64_t chunk) {
    ask("weights", std::string(snapshot.chunks()[static_cast<size_t>(chunk)].bytes),
        concat(chunk_header, ": ", chunk, "\r\n"));
  }
  void push_weights(const WeightSnapshot& snapshot) {
    for (const int64_t chunk : commit(snapshot)) send(snapshot, chunk);
    EXPECT_TRUE(commit(snapshot).empty());
  }
  static WorkerPoll poll(int64_t number, int64_t version, const std::vector<GenerationRequest>& submitted = {}) {
    WorkerPoll out{.number = number, .wait = 0, .version = version, .submit = {}, .cancel = {}};
    for (size_t i = 0; i < submitted.size(); ++i) out.submit.push_back({.ticket = i + 1, .request = submitted[i]});
    return out;
  }
  WorkerPollResult take(const WorkerPoll& turn) { return WorkerPollResult::parse(ask("turn", turn.to_json().dump())); }
  // Submits the requests with this poll and polls until all are finished.
  Completions take_all(int64_t number, int64_t version, const std::vector<GenerationRequest>& submitted) {
    Completions out(submitted.size());
    WorkerPoll next = poll(number, version, submitted);
    for (size_t num_finished = 0; num_finished < submitted.size();) {
      next.wait = 1;
      for (WorkerPollResult::Finished& done : take(next).finished)
        out.at(done.ticket - 1) = std::move(done.completions), ++num_finished;
      next = poll(next.number + 1, version);
    }
    last_poll = next.number - 1;
    return out;
  }

  std::string session;
  int64_t last_poll = 0;

 private:
  HttpClient http_;
};

}  // namespace hone::test
