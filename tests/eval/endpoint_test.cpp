// Endpoints: what is sent, retries, broken servers, likelihoods of echoed prompts, usage and cost.
#include "eval/endpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>

#include "tests/support/http_server.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

std::string completion_body(const std::string& text) {
  return Json(JsonObject{{"choices", JsonArray{JsonObject{{"text", text}, {"finish_reason", "stop"}}}},
                         {"usage", JsonObject{{"prompt_tokens", 10}, {"completion_tokens", 3}}}})
      .dump();
}

std::string chat_body(const std::string& text) {
  const Json message = JsonObject{{"role", "assistant"}, {"content", text}};
  return Json(JsonObject{{"choices", JsonArray{JsonObject{{"message", message}, {"finish_reason", "length"}}}},
                         {"usage", JsonObject{{"prompt_tokens", 7}, {"completion_tokens", 2}}}})
      .dump();
}

EndpointConfig config_of(const HttpServer& server) {
  return {{.base_url = server.url("127.0.0.1", "/v1"),
           .model = "m",
           .api_key_env = "HONE_TEST_API_KEY",
           .max_retries = 3,
           .request_timeout = 5,
           .max_retry_wait = 0.05},
          4};
}

std::vector<Task> tasks_of(const std::vector<std::string>& prompts) {
  std::vector<Task> out;
  for (const std::string& prompt : prompts) {
    Task& task = out.emplace_back();
    task.id = "rows.jsonl:" + std::to_string(out.size());
    task.prompt = prompt;
  }
  return out;
}

EndpointSampling greedy() {
  EndpointSampling out;
  out.sampling.temperature = 0;
  return out;
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Endpoint, SendsCompletionsAndChatsWithTheirSampling) {
  ::setenv("HONE_TEST_API_KEY", "sk-secret", 1);
  std::mutex mutex;
  std::vector<ReceivedRequest> received;
  const HttpServer server([&](const ReceivedRequest& request) {
    const std::lock_guard lock(mutex);
    received.push_back(request);
    const bool chat = request.head.find("/v1/chat/completions") != std::string::npos;
    return http_response(chat ? chat_body("hi") : completion_body("four STOP five"));
  });
  Endpoint endpoint(config_of(server));
  std::vector<Task> tasks = tasks_of({"two and two is"});
  SamplingParams sampling;
  sampling.temperature = 0.5;
  sampling.top_p = 0.9;
  sampling.top_k = 20;
  sampling.max_tokens = 11;
  sampling.seed = 3;
  sampling.stop = {"STOP"};
  const auto replies = endpoint.complete(tasks, {.num_completions = 2, .sampling = sampling}, "test");
  ASSERT_EQ(replies.size(), 1U);
  ASSERT_EQ(replies[0].completions.size(), 2U);
  EXPECT_EQ(replies[0].completions[0].text, "four ");
  EXPECT_EQ(replies[0].completion_tokens, 6);
  std::vector<int64_t> seeds;
  for (const ReceivedRequest& request : received) {
    EXPECT_NE(request.head.find("Authorization: Bearer sk-secret"), std::string::npos) << request.head;
    const Json body = parse_json(request.body, "body");
    EXPECT_EQ(body.at("model").as_string(), "m");
    EXPECT_EQ(body.at("prompt").as_string(), "two and two is");
    EXPECT_EQ(body.at("top_p").as_double(), 0.9);
    EXPECT_EQ(body.at("top_k").as_int(), 20);
    EXPECT_EQ(body.at("max_tokens").as_int(), 11);
    EXPECT_EQ(body.find("min_p"), nullptr);
    seeds.push_back(body.at("seed").as_int());
  }
  std::sort(seeds.begin(), seeds.end());
  EXPECT_EQ(seeds, (std::vector<int64_t>{3, 4}));

  tasks[0].messages = {{"user", "hello", {}}};
  const auto chats = endpoint.complete(tasks, greedy(), "test");
  EXPECT_EQ(chats[0].completions[0].text, "hi");
  EXPECT_EQ(chats[0].completions[0].finish_reason, "length");
  EXPECT_EQ(parse_json(received.back().body, "body").at("messages").as_array().size(), 1U);
  const EndpointUsage usage = endpoint.usage();
  EXPECT_EQ(usage.requests, 3);
  EXPECT_EQ(usage.prompt_tokens, 27);
  EXPECT_EQ(usage.completion_tokens, 8);
  ::unsetenv("HONE_TEST_API_KEY");
}

TEST(Endpoint, SendsWhatVllmKnowsAndKeepsReasoningAndToolCalls) {
  Json body;
  const HttpServer server([&](const ReceivedRequest& request) {
    body = parse_json(request.body, "body");
    return http_response(R"({"choices": [{"message": {"role": "assistant", "content": null, "reasoning_content": "hm",
      "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}], "refusal": null}}],
      "usage": {"completion_tokens": 9}})");
  });
  Endpoint endpoint(config_of(server));
  Task task = tasks_of({"a"}).front();
  task.messages = {{"user", "hello", {}}};
  SamplingParams sampling;
  sampling.seed = 3;
  sampling.presence_penalty = 0.5;
  sampling.repetition_penalty = 1.1;
  sampling.min_tokens = 2;
  sampling.stop_ids = {7};
  sampling.logit_bias = {{.id = 11, .bias = -5}};
  const EndpointCompletion one = endpoint.complete_one(task, {.num_completions = 4, .sampling = sampling}, 2);
  EXPECT_EQ(body.at("seed").as_int(), 5);
  EXPECT_EQ(body.at("presence_penalty").as_double(), 0.5);
  EXPECT_EQ(body.at("repetition_penalty").as_double(), 1.1);
  EXPECT_EQ(body.at("min_tokens").as_int(), 2);
  EXPECT_EQ(body.at("stop_token_ids").dump(), "[7]");
  EXPECT_EQ(body.at("logit_bias").dump(), "{\"11\": -5.0}");
  EXPECT_EQ(body.find("frequency_penalty"), nullptr);
  EXPECT_EQ(one.num_tokens, 9);
  ASSERT_EQ(one.completion.messages.size(), 1U);
  EXPECT_EQ(one.completion.messages[0].extra.at("reasoning_content").as_string(), "hm");
  EXPECT_EQ(one.completion.messages[0].extra.at("tool_calls").as_array().size(), 1U);
  EXPECT_EQ(one.completion.messages[0].extra.find("refusal"), nullptr);
}

TEST(Endpoint, RepeatsWhatMayPassAndNamesWhatDoesNot) {
  // Each prompt has its own trouble for the first attempts, or for ever.
  std::mutex mutex;
  std::map<std::string, int> attempts;
  const HttpServer server([&](const ReceivedRequest& request) -> std::string {
    const std::string prompt = parse_json(request.body, "body").at("prompt").as_string();
    int attempt = 0;
    {
      const std::lock_guard lock(mutex);
      attempt = attempts[prompt]++;
    }
    const bool first = attempt < 2;
    if (prompt == "busy" && first)
      return http_response("{\"error\": {\"message\": \"slow down\"}}", 429, "Retry-After: 0\r\n");
    if (prompt == "error" && first) return http_response("oops", 500);
    if (prompt == "cut" && first) return http_response(completion_body("x").substr(0, 20));
    if (prompt == "types" && first) return http_response("{\"choices\": [{\"text\": 5}]}");
    if (prompt == "list" && first) return http_response("[1, 2]");
    if (prompt == "empty" && first) return http_response("{\"choices\": []}");
    if (prompt == "closes" && first) return "";
    if (prompt == "partial" && first) return "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{";
    if (prompt == "broken") return http_response("oops", 503);
    if (prompt == "routed")
      return http_response("{\"error\": {\"message\": \"model is overloaded\", \"code\": 502}, \"choices\": null}");
    if (prompt == "refused") return http_response("{\"error\": {\"message\": \"too long\"}}", 400);
    return http_response(completion_body("fine"));
  });
  Endpoint endpoint(config_of(server));
  const std::vector<std::string> prompts{"busy",   "error",   "cut",    "types",   "list", "empty",
                                         "closes", "partial", "broken", "refused", "well", "routed"};
  const std::vector<Task> tasks = tasks_of(prompts);
  const auto replies = endpoint.complete(tasks, greedy(), "test");
  for (size_t i = 0; i < prompts.size(); ++i) {
    const bool fails = prompts[i] == "broken" || prompts[i] == "refused" || prompts[i] == "routed";
    EXPECT_EQ(replies[i].problem.empty(), !fails) << prompts[i] << ": " << replies[i].problem;
    EXPECT_EQ(replies[i].completions[0].text, fails ? "" : "fine") << prompts[i];
  }
  EXPECT_NE(replies[8].problem.find("failed after 4 attempts: status 503"), std::string::npos) << replies[8].problem;
  EXPECT_NE(replies[9].problem.find("status 400: too long"), std::string::npos) << replies[9].problem;
  EXPECT_NE(replies[11].problem.find("the response is an error: model is overloaded"), std::string::npos)
      << replies[11].problem;
  EXPECT_EQ(attempts["refused"], 1);
  const EndpointUsage usage = endpoint.usage();
  EXPECT_EQ(usage.failed, 3);
  EXPECT_GE(usage.retries, 19);
  EXPECT_NE(usage.first_failure.find("rows.jsonl:"), std::string::npos) << usage.first_failure;
}

TEST(Endpoint, RefusesWhereNoRequestCanSucceed) {
  ::setenv("HONE_TEST_API_KEY", "sk-secret", 1);
  int status = 401;
  const HttpServer server([&](const ReceivedRequest&) {
    return http_response("{\"error\": {\"message\": \"key sk-secret is wrong\"}}", status);
  });
  Endpoint endpoint(config_of(server));
  const std::vector<Task> tasks = tasks_of({"a", "b"});
  const auto ask = [&] { endpoint.complete(tasks, greedy(), "test"); };
  const std::string wrong_key = refusal(ask);
  EXPECT_NE(wrong_key.find("status 401: key *** is wrong"), std::string::npos) << wrong_key;
  status = 404;
  EXPECT_NE(refusal(ask).find("--apply-chat-template"), std::string::npos);
  status = 503;
  const std::string all = refusal(ask);
  EXPECT_NE(all.find("all 2 requests failed; the first: rows.jsonl:"), std::string::npos) << all;
  ::unsetenv("HONE_TEST_API_KEY");
  EXPECT_NE(refusal([] { Endpoint(EndpointConfig{{.base_url = "localhost:8000", .model = "m"}}); }).find("http://"),
            std::string::npos);
}

TEST(Endpoint, ATimeoutIsRepeated) {
  std::atomic<int> attempts = 0;
  const HttpServer server([&](const ReceivedRequest&) {
    if (attempts++ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    return http_response(completion_body("late"));
  });
  EndpointConfig config = config_of(server);
  config.request_timeout = 0.2;
  Endpoint endpoint(config);
  const auto replies = endpoint.complete(tasks_of({"a"}), greedy(), "test");
  EXPECT_EQ(replies[0].completions[0].text, "late") << replies[0].problem;
  EXPECT_GE(endpoint.usage().retries, 1);
}

TEST(Endpoint, HttpsChecksTheCertificate) {
  const HttpServer server([](const ReceivedRequest&) { return http_response(completion_body("safe")); }, "localhost");
  EndpointConfig config = config_of(server);
  config.base_url = server.url("localhost", "/v1");
  config.max_retries = 0;
  ASSERT_TRUE(config.base_url.starts_with("https://"));
  const std::vector<Task> tasks = tasks_of({"a"});
  const std::string why = refusal([&] { Endpoint(config).complete(tasks, greedy(), "test"); });
  EXPECT_NE(why.find("certificate"), std::string::npos) << why;
  ::setenv("SSL_CERT_FILE", server.certificate_file().c_str(), 1);
  Endpoint trusting(config);
  EXPECT_EQ(trusting.complete(tasks, greedy(), "test")[0].completions[0].text, "safe");
  ::unsetenv("SSL_CERT_FILE");
}

TEST(Endpoint, ScoresAreTheTokensBeyondTheContext) {
  const HttpServer server([](const ReceivedRequest& request) {
    const Json body = parse_json(request.body, "body");
    EXPECT_EQ(body.at("prompt").as_string(), "The sky is blue");
    EXPECT_TRUE(body.at("echo").as_bool());
    return http_response(
        R"({"choices": [{"text": "The sky is blue.", "logprobs": {"tokens": ["<s>", "The", " sky", " is", " bl", "ue", "."],
            "token_logprobs": [null, -1, -2, -3, -0.5, -0.25, -9], "text_offset": [0, 0, 3, 7, 10, 13, 15],
            "top_logprobs": [null, {"The": -1}, {"x": -1}, {"x": -1}, {" bl": -0.5}, {"ue": -0.25}, {".": -9}]}}]})");
  });
  Endpoint endpoint(config_of(server));
  const std::vector<ScoredText> texts{
      {"rows:1", "The sky is", " blue"}, {"rows:2", "The sky is ", "blue"}, {"rows:3", "The sky", " is blue"}};
  const auto scores = endpoint.score(texts);
  EXPECT_DOUBLE_EQ(scores[0].logp, -0.75);
  EXPECT_TRUE(scores[0].is_greedy);
  EXPECT_DOUBLE_EQ(scores[1].logp, -0.75);
  EXPECT_DOUBLE_EQ(scores[2].logp, -3.75);
  EXPECT_FALSE(scores[2].is_greedy);
}

TEST(Endpoint, AServerWithoutLogprobsIsRefused) {
  const HttpServer server([](const ReceivedRequest&) { return http_response(completion_body("a")); });
  Endpoint endpoint(config_of(server));
  const std::vector<ScoredText> texts{{"rows:1", "a", "b"}};
  const std::string why = refusal([&] { endpoint.score(texts); });
  EXPECT_NE(why.find("the server returns no log-probs of a prompt"), std::string::npos) << why;
}

TEST(Endpoint, CostIsOfTokens) {
  Endpoint endpoint(EndpointConfig{{.base_url = "http://localhost:1/v1", .model = "m"}, 8, 2, 10});
  EXPECT_DOUBLE_EQ(endpoint.cost({{.prompt_tokens = 500000, .completion_tokens = 100000}}), 2);
}

}  // namespace
}  // namespace hone::test
