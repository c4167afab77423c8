// Rewards behind HTTP, with well-behaved and ill-behaved servers.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/io/json.h"
#include "rewards/reward.h"
#include "tests/support/http_server.h"

namespace hone::test {
namespace {

std::shared_ptr<const Reward> reward(const std::string& url, const std::string& keys = "retries = 0") {
  return make_reward("{kind = 'http', url = '" + url + "', " + keys + "}");
}

std::vector<RewardScore> score(const Reward& reward, const std::vector<std::string>& texts, const Task& task = {}) {
  std::vector<Completion> completions;
  for (const std::string& text : texts) completions.push_back({.ids = {}, .text = text, .finish_reason = "stop"});
  std::vector<RewardScore> scores(texts.size());
  reward.score_group(task, completions, scores);
  return scores;
}

// Returns the note of a completion that failed because the server sent these bytes.
std::string failure(const std::string& bytes) {
  HttpServer server([&](const ReceivedRequest&) { return bytes; });
  const RewardScore out = score(*reward(server.url()), {"x"})[0];
  EXPECT_TRUE(out.failed) << bytes;
  return out.note;
}

TEST(PluginHttp, PostsOpenRlhfsPayload) {
  Json got;
  std::string head;
  HttpServer server([&](const ReceivedRequest& request) {
    got = parse_json(request.body, "request");
    head = request.head;
    return http_response("{\"rewards\": [1, null, -2.5], \"extra_logs\": {}}");
  });
  ::setenv("HONE_TEST_TOKEN", "secret", 1);
  const auto plugin = reward(server.url(), "headers = ['Authorization: Bearer ${HONE_TEST_TOKEN}']");
  Task task{.id = "t", .prompt = "p?", .messages = {}, .answer = "l", .columns = {}};
  const std::vector<RewardScore> scores = score(*plugin, {"a", "b", "c"}, task);
  EXPECT_EQ(got,
            parse_json(R"({"query": ["p?a", "p?b", "p?c"], "prompts": ["p?", "p?", "p?"], "labels": ["l", "l", "l"]})",
                       "expected"));
  EXPECT_NE(head.find("Authorization: Bearer secret"), std::string::npos);
  EXPECT_EQ(scores[0].score, 1);
  EXPECT_TRUE(scores[1].skipped);
  EXPECT_EQ(scores[2].score, -2.5);
  task.rendered = "<user>p?<assistant>";
  score(*plugin, {"a", "b", "c"}, task);
  EXPECT_EQ(got.at("query").as_array()[0], Json("<user>p?<assistant>a"));
  EXPECT_EQ(got.at("prompts").as_array()[0], Json("<user>p?<assistant>"));
}

TEST(PluginHttp, WhatIsNoAnswerHasFailedAndIsShown) {
  const auto contains = [](const std::string& bytes, const std::string& why) {
    const std::string got = failure(bytes);
    EXPECT_NE(got.find(why), std::string::npos) << got;
  };
  contains(http_response("the model is loading", 500), "status 500: the model is loading");
  contains(http_response("", 404), "status 404");
  contains(http_response("", 302, "Location: http://127.0.0.1/else\r\n"), "it redirects to http://127.0.0.1/else");
  contains(http_response("<html>"), "the answer is not JSON: <html>");
  contains(http_response("[1]"), "the answer has no list of rewards");
  contains(http_response("{\"rewards\": 1}"), "the answer has no list of rewards");
  contains(http_response("{\"rewards\": []}"), "the answer has 0 rewards for 1 completions");
  contains(http_response("{\"rewards\": [1, 2]}"), "the answer has 2 rewards for 1 completions");
  contains(http_response("{\"rewards\": [NaN]}"), "the answer is not JSON");
  contains(http_response("{\"rewards\": [1e300]}"), "its score is 1e+300");
  contains(http_response("{\"rewards\": [[1]]}"), "its score is [1]");
  contains("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"rewards\"", "http://127.0.0.1");
  contains("", "http://127.0.0.1");
}

TEST(PluginHttp, ASlowServerTimesOutAndIsRetried) {
  std::atomic<int> asked{0};
  HttpServer server([&](const ReceivedRequest&) {
    if (asked++ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    return http_response("{\"rewards\": [4]}");
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(score(*reward(server.url(), "timeout = 0.2, retry_delay = 0"), {"x"})[0].score, 4);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(590));
  EXPECT_EQ(asked, 2);
}

TEST(PluginHttp, AnUntrustedCertificateIsRefused) {
  HttpServer server([](const ReceivedRequest&) { return http_response("{\"rewards\": [4]}"); }, "localhost");
  const RewardScore refused = score(*reward(server.url("localhost")), {"x"})[0];
  EXPECT_TRUE(refused.failed);
  EXPECT_NE(refused.note.find("certificate verify failed"), std::string::npos) << refused.note;
  ::setenv("SSL_CERT_FILE", server.certificate_file().c_str(), 1);
  EXPECT_EQ(score(*reward(server.url("localhost")), {"x"})[0].score, 4);
  ::unsetenv("SSL_CERT_FILE");
}

TEST(PluginHttp, SettingsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(make_reward("http"), Error);
  EXPECT_THROW(reward("ftp://a"), Error);
  EXPECT_THROW(reward("http://a", "headers = ['no colon']"), Error);
  EXPECT_THROW(reward("http://a", "timeout = 0"), Error);
  EXPECT_THROW(reward("http://a", "workers = 0"), Error);
}

}  // namespace
}  // namespace hone::test
