#pragma once
// What a learner says to a worker, said by hand.
#include "core/net/digest.h"
#include "tests/rollout/remote/worker_fixture.h"
#include "tests/support/http_client.h"

namespace hone::test {

// A learner that says what the test says.
class Learner {
 public:
  explicit Learner(int64_t port) : http_(port) {}
  // The answer to a message with its digest.
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
  void refused(const std::string& what, const std::string& body, int status, const std::string& code,
               const std::string& more_headers = "") {
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
  std::vector<int64_t> commit(const WeightSnapshot& image) {
    std::vector<int64_t> out;
    const Json answer = ask("commit", commit_body(image));
    for (const Json& block : answer.at("missing").as_array()) out.push_back(block.as_int());
    return out;
  }
  static std::string commit_body(const WeightSnapshot& image) {
    JsonArray digests;
    for (const WeightChunks::Block& block : image.blocks()) digests.emplace_back(base64(block.digest));
    return Json(JsonObject{{"version", image.version()}, {"landed", false}, {"digests", digests}}).dump();
  }
  void send(const WeightSnapshot& image, int64_t block) {
    ask("weights", std::string(image.blocks()[static_cast<size_t>(block)].bytes),
        concat(block_header, ": ", block, "\r\n"));
  }
  void bring(const WeightSnapshot& image) {
    for (const int64_t block : commit(image)) send(image, block);
    EXPECT_TRUE(commit(image).empty());
  }
  static WorkerPoll turn(int64_t number, int64_t version, const std::vector<GenerationRequest>& asked = {}) {
    WorkerPoll out{.number = number, .wait = 0, .version = version, .submit = {}, .cancel = {}};
    for (size_t i = 0; i < asked.size(); ++i) out.submit.push_back({.ticket = i + 1, .request = asked[i]});
    return out;
  }
  WorkerPollResult take(const WorkerPoll& turn) { return WorkerPollResult::parse(ask("turn", turn.to_json().dump())); }
  // Turns from this one on, until all that was asked is whole.
  Replies take_all(int64_t number, int64_t version, const std::vector<GenerationRequest>& asked) {
    Replies out(asked.size());
    WorkerPoll next = turn(number, version, asked);
    for (size_t whole = 0; whole < asked.size();) {
      next.wait = 1;
      for (WorkerPollResult::Done& done : take(next).finished)
        out.at(done.ticket - 1) = std::move(done.replies), ++whole;
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

}  // namespace hone::test
