// The server on a real socket: its responses equal the engine's completions, and whatever a client does, the next one
// is served.
#include "serve/server.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/serve/server_fixture.h"

namespace hone {
namespace {

using test::HttpAnswer;
using test::HttpClient;
using test::post_request;
using test::soon;

class ServerTest : public test::ServerFixture {};

// Text after a round trip through JSON.
std::string sent(const std::string& text) { return parse_json(Json(text).dump(), "").as_string(); }

TEST_F(ServerTest, ACompletionIsTheEnginesBitForBit) {
  const std::vector<CompletionOutput> expected =
      replies_to({.prompt = test::byte_ids("abc"),
                  .n = 2,
                  .id = 0,
                  .sampling = {.temperature = 0.8, .max_tokens = 12, .seed = 4, .stop = {}, .stop_ids = {}},
                  .top_logprobs = 2,
                  .prompt_logprobs = true});
  start();
  const Json answer = post(
      "/v1/completions", R"({"model": "tiny", "prompt": "abc", "n": 2, "max_tokens": 12, "temperature": 0.8, "seed": 4,
      "logprobs": 2, "echo": true, "return_token_ids": true})");
  EXPECT_EQ(answer.at("object").as_string(), "text_completion");
  EXPECT_EQ(answer.at("model").as_string(), "tiny");
  const JsonArray& choices = answer.at("choices").as_array();
  ASSERT_EQ(choices.size(), 2u);
  int64_t written = 0;
  for (size_t i = 0; i < 2; ++i) {
    const CompletionOutput& reply = expected[i];
    written += static_cast<int64_t>(reply.ids.size());
    EXPECT_EQ(choices[i].at("index").as_int(), static_cast<int64_t>(i));
    EXPECT_EQ(choices[i].at("text").as_string(), "abc" + sent(reply.text));
    EXPECT_EQ(choices[i].at("token_ids"), Json::array(reply.ids));
    EXPECT_EQ(choices[i].at("finish_reason").as_string(), reply.finish_reason);
    const JsonArray& logp = choices[i].at("logprobs").at("token_logprobs").as_array();
    const JsonArray& top = choices[i].at("logprobs").at("top_logprobs").as_array();
    ASSERT_EQ(logp.size(), 3 + reply.ids.size());
    EXPECT_TRUE(logp[0].is_null() && top[0].is_null());
    for (size_t t = 1; t < 3; ++t) EXPECT_EQ(static_cast<float>(logp[t].as_double()), reply.prompt_logp[t]);
    for (size_t t = 0; t < reply.ids.size(); ++t) {
      EXPECT_EQ(static_cast<float>(logp[3 + t].as_double()), reply.raw_logp[t]);
      EXPECT_EQ(static_cast<float>(top[3 + t].as_object()[0].second.as_double()), reply.top_logprobs[t][0].logp);
      EXPECT_TRUE(top[3 + t].as_object().size() == 2 || top[3 + t].as_object().size() == 3);  // and the token itself
    }
    EXPECT_EQ(choices[i].at("logprobs").at("text_offset").as_array()[3].as_int(), 3);
  }
  EXPECT_EQ(answer.at("usage").dump(), concat("{\"prompt_tokens\": 3, \"completion_tokens\": ", written,
                                              ", \"total_tokens\": ", 3 + written, "}"));
}

TEST_F(ServerTest, AChatIsTheEnginesBitForBit) {
  const std::vector<int32_t> prompt = model.chat.encode(model.tokenizer, {{"user", "hi", {}}}, true).ids;
  const CompletionOutput expected =
      replies_to({.prompt = prompt,
                  .id = 0,
                  .sampling = {.max_tokens = 10, .seed = 6, .stop = {}, .stop_ids = {257}},
                  .top_logprobs = 3})[0];
  start();
  const std::string body =
      R"("messages": [{"role": "user", "content": "hi"}], "max_tokens": 10, "seed": 6, "logprobs": true, "top_logprobs": 3})";
  const Json answer = post("/v1/chat/completions", "{" + body);
  EXPECT_EQ(answer.at("object").as_string(), "chat.completion");
  const Json& choice = answer.at("choices").as_array()[0];
  EXPECT_EQ(choice.at("message").at("role").as_string(), "assistant");
  EXPECT_EQ(choice.at("message").at("content").as_string(), sent(expected.text));
  const JsonArray& content = choice.at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), expected.ids.size());
  for (size_t t = 0; t < content.size(); ++t) {
    EXPECT_EQ(static_cast<float>(content[t].at("logprob").as_double()), expected.raw_logp[t]);
    ASSERT_EQ(content[t].at("top_logprobs").as_array().size(), 3u);
    if (expected.ids[t] < 256) {
      EXPECT_EQ(content[t].at("bytes").dump(), concat("[", expected.ids[t], "]"));
    }
    EXPECT_EQ(static_cast<float>(content[t].at("top_logprobs").as_array()[2].at("logprob").as_double()),
              expected.top_logprobs[t][2].logp);
  }

  const std::vector<Json> stream =
      events("/v1/chat/completions", R"({"stream": true, "stream_options": {"include_usage": true}, )" + body);
  std::string text;
  JsonArray streamed;
  for (const Json& event : stream) {
    EXPECT_EQ(event.at("object").as_string(), "chat.completion.chunk");
    for (const Json& part : event.at("choices").as_array()) {
      if (const Json* words = part.at("delta").find("content")) text += words->as_string();
      for (const Json& token : part.at("logprobs").at("content").as_array()) streamed.push_back(token);
    }
  }
  EXPECT_EQ(text, sent(expected.text));
  EXPECT_EQ(Json(streamed), Json(content));
  EXPECT_EQ(stream.front().at("choices").as_array()[0].at("delta").at("role").as_string(), "assistant");
  EXPECT_EQ(stream[stream.size() - 2].at("choices").as_array()[0].at("finish_reason").as_string(),
            expected.finish_reason);
  EXPECT_EQ(stream.back().at("usage"), answer.at("usage"));
}

TEST_F(ServerTest, AStreamAddsUpToTheCompleteResponse) {
  start();
  const std::string body =
      R"("prompt": ["abc", "def"], "n": 2, "max_tokens": 30, "seed": 4, "logprobs": 1, "echo": true, "stop": ["zz"]})";
  const JsonArray whole = post("/v1/completions", "{" + body).at("choices").as_array();
  std::vector<std::string> texts(4);
  std::vector<JsonArray> logp(4), offsets(4);
  std::vector<int> ends(4);
  for (const Json& event : events("/v1/completions", R"({"stream": true, )" + body)) {
    const Json& part = event.at("choices").as_array()[0];
    const auto i = static_cast<size_t>(part.at("index").as_int());
    texts[i] += part.at("text").as_string();
    for (const Json& one : part.at("logprobs").at("token_logprobs").as_array()) logp[i].push_back(one);
    for (const Json& one : part.at("logprobs").at("text_offset").as_array()) offsets[i].push_back(one);
    if (!part.at("finish_reason").is_null()) ++ends[i];
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(texts[i], whole[i].at("text").as_string());
    EXPECT_EQ(Json(logp[i]), whole[i].at("logprobs").at("token_logprobs"));
    EXPECT_EQ(Json(offsets[i]), whole[i].at("logprobs").at("text_offset"));
    EXPECT_EQ(ends[i], 1);
  }
}

TEST_F(ServerTest, PromptLogProbsWithoutACompletion) {
  start();
  const Json choice =
      post("/v1/completions", R"({"prompt": [97, 98, 99], "max_tokens": 0, "echo": true, "logprobs": 1})")
          .at("choices")
          .as_array()[0];
  EXPECT_EQ(choice.at("text").as_string(), "abc");
  EXPECT_EQ(choice.at("logprobs").at("tokens").dump(), R"(["a", "b", "c"])");
  EXPECT_EQ(choice.at("logprobs").at("token_logprobs").as_array().size(), 3u);
}

TEST_F(ServerTest, TheSameSeedGivesTheSameResponse) {
  start();
  const auto text = [&](const char* more) {
    return post("/v1/completions", concat(R"({"prompt": "a", "max_tokens": 30)", more, "}"))
        .at("choices")
        .as_array()[0]
        .at("text")
        .as_string();
  };
  EXPECT_EQ(text(", \"seed\": 3"), text(", \"seed\": 3"));
  EXPECT_NE(text(", \"seed\": 3"), text(", \"seed\": 4"));
  EXPECT_NE(text(""), text(""));
  EXPECT_EQ(text(", \"temperature\": 0"), text(", \"temperature\": 0"));
}

TEST_F(ServerTest, ModelsHealthAndUnknownPaths) {
  start();
  HttpClient client(server->port());
  EXPECT_EQ(parse_json(client.get("/v1/models").body, "").at("data").as_array()[0].at("id").as_string(), "tiny");
  EXPECT_EQ(client.get("/health").body, R"({"status":"ok"})");
  const HttpAnswer missing = client.get("/v1/nothing");
  EXPECT_EQ(missing.status, 404);
  EXPECT_NE(missing.body.find("unknown path /v1/nothing"), std::string::npos);
  const HttpAnswer wrong = client.get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
}

TEST_F(ServerTest, BadRequestsGetAnErrorThatSaysWhatIsWrong) {
  start();
  const Json error = post("/v1/completions", R"({"prompt": "a", "n": -1})", 400).at("error");
  EXPECT_EQ(error.at("param").as_string(), "n");
  EXPECT_EQ(error.at("type").as_string(), "invalid_request_error");
  EXPECT_NE(post("/v1/completions", "{\"prompt\": ", 400).at("error").at("message").as_string().find("body"),
            std::string::npos);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "model": "b"})", 404).at("error").at("code").as_string(),
            "model_not_found");
  post("/v1/completions", std::string(300, '['), 400);
  post("/v1/completions", "", 400);
  post("/v1/completions", "\xFF\xFE", 400);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})").at("choices").as_array().size(), 1u);
}

TEST_F(ServerTest, WithKeysAKeyIsNeeded) {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / "keys";
  std::ofstream(file) << "secret\n";
  ServerConfig config;
  config.api_key_file = file.string();
  start(config);
  const auto status = [&](const std::string& path, const std::string& header = "") {
    return HttpClient(server->port()).get(path, header).status;
  };
  EXPECT_EQ(status("/v1/models"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer secre\r\n"), 401);
  EXPECT_EQ(status("/metrics"), 401);
  EXPECT_EQ(status("/nothing"), 401);
  HttpClient client(server->port());
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(client.get("/health").status, 200);
  const HttpAnswer refused = HttpClient(server->port()).post("/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(parse_json(refused.body, "").at("error").at("code").as_string(), "invalid_api_key");
}

TEST_F(ServerTest, ADisconnectedClientFreesItsRequest) {
  start({}, {.max_sequences = 1});
  const std::string endless = R"({"prompt": "a", "max_tokens": 500, "ignore_eos": true, "n": 40, "stream": )";
  for (const char* stream : {"true}", "false}"}) {
    HttpClient client(server->port());
    client.send(post_request("/v1/completions", endless + stream));
    if (std::string(stream) == "true}")
      ASSERT_TRUE(client.read_until("data: "));
    else
      ASSERT_TRUE(soon([&] { return metric("hone_replies") == 40; }));
    client.close();
    EXPECT_TRUE(soon([&] { return metric("hone_replies") == 0; }));
  }
  EXPECT_EQ(metric("hone_jobs_cancelled_total"), 2);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})").at("choices").as_array().size(), 1u);
  EXPECT_LT(metric("hone_generated_tokens_total"), 20000);  // of 40000 requested tokens
}

TEST_F(ServerTest, AFullServerSaysWhenToRetry) {
  ServerConfig config;
  config.max_pending_completions = 40;
  start(config, {.max_sequences = 1});
  HttpClient first(server->port());
  first.send(post_request("/v1/completions", R"({"prompt": "a", "max_tokens": 500, "ignore_eos": true, "n": 40})"));
  ASSERT_TRUE(soon([&] { return metric("hone_replies") == 40; }));
  const HttpAnswer full = HttpClient(server->port()).post("/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(full.status, 429);
  EXPECT_GE(std::stoi(full.headers.at("retry-after")), 1);
  EXPECT_EQ(parse_json(full.body, "").at("error").at("type").as_string(), "rate_limit_error");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "n": 41})", 400).at("error").at("param").as_string(),
            "n");  // never
  first.close();
  ASSERT_TRUE(soon([&] { return metric("hone_replies") == 0; }));
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})").at("choices").as_array().size(), 1u);
}

TEST_F(ServerTest, DrainingFinishesPendingRequests) {
  start();
  HttpClient client(server->port());
  client.send(
      post_request("/v1/completions", R"({"prompt": "a", "max_tokens": 300, "ignore_eos": true, "stream": true})"));
  ASSERT_TRUE(client.read_until("data: "));
  EXPECT_TRUE(server->drain(60));
  EXPECT_TRUE(client.answer().body.ends_with("data: [DONE]\n\n"));
  EXPECT_THROW(HttpClient(server->port()), std::runtime_error);
}

TEST_F(ServerTest, EndsWithPendingRequests) {
  start();
  HttpClient client(server->port());
  client.send(post_request("/v1/completions",
                           R"({"prompt": "a", "max_tokens": 500, "ignore_eos": true, "n": 100, "stream": true})"));
  ASSERT_TRUE(client.read_until("data: "));
  server.reset();
  while (!client.read().empty()) {}
}

TEST_F(ServerTest, HundredsAtOnceGetTheSameAsOneAlone) {
  start();
  constexpr int count = 300;
  const auto body = [](int i) {
    return concat(R"({"prompt": "p)", i % 10, R"(", "max_tokens": 8, "seed": )", i % 10,
                  ", \"stream\": ", i % 3 == 0 ? "true" : "false", "}");
  };
  std::vector<std::string> alone;
  for (int i = 0; i < 10; ++i)
    alone.push_back(post("/v1/completions", concat(R"({"prompt": "p)", i, R"(", "max_tokens": 8, "seed": )", i, "}"))
                        .at("choices")
                        .as_array()[0]
                        .at("text")
                        .as_string());
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server->port()));
    clients.back()->send(post_request("/v1/completions", body(i)));
  }
  for (int i = 0; i < count; ++i) {
    const HttpAnswer answer = clients[i]->answer();
    ASSERT_EQ(answer.status, 200) << answer.body;
    if (i % 3 == 0) {
      EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
    } else {
      EXPECT_EQ(parse_json(answer.body, "").at("choices").as_array()[0].at("text").as_string(), alone[i % 10]) << i;
    }
  }
  EXPECT_EQ(metric("hone_replies"), 0);
  EXPECT_EQ(metric("hone_requests_total{path=\"/v1/completions\",status=\"200\"}"), count + 10);
}

}  // namespace
}  // namespace hone
