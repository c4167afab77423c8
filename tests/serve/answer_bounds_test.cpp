// The bounds of responses, and how long ones are sent.
#include "tests/serve/server_fixture.h"

namespace hone::test {
namespace {

class ResponseBoundsTest : public ServerFixture {
 protected:
  std::string refused(const std::string& path, const std::string& body, int status = 400) const {
    const HttpAnswer answer = HttpClient(server->port()).post(path, body);
    EXPECT_EQ(answer.status, status) << answer.body.substr(0, 300);
    return answer.body;
  }
  static std::string ids(int count) {
    std::string out = "[65";
    for (int i = 1; i < count; ++i) out += ", 65";
    return out + "]";
  }
};

TEST_F(ResponseBoundsTest, ATooLongResponseIsRejectedWithWhatToLower) {
  start();
  const std::string chat = R"("messages": [{"role": "user", "content": "a"}])";
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {"/v1/completions", concat(R"({"prompt": )", ids(400), R"(, "n": 1024, "echo": true, "logprobs": 64})")},
           {"/v1/completions",
            concat(R"({"prompt": )", ids(400), R"(, "n": 1024, "echo": true, "logprobs": 64, "stream": true})")},
           {"/v1/completions",
            concat(R"({"prompt": )", ids(400), R"(, "n": 1024, "echo": true, "logprobs": 64, "max_tokens": 0})")},
           {"/v1/completions", R"({"prompt": "a", "n": 1024, "max_tokens": 511, "logprobs": 64})"},
           {"/v1/chat/completions",
            "{" + chat + R"(, "n": 1024, "max_tokens": 400, "logprobs": true, "top_logprobs": 64})"}}) {
    const std::string message = refused(path, body);
    EXPECT_NE(message.find("--max-answer-bytes"), std::string::npos) << message;
    EXPECT_NE(message.find("lower n, max_tokens"), std::string::npos) << message;
    EXPECT_NE(message.find("answer_too_long"), std::string::npos) << message;
  }
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "n": 4, "max_tokens": 511, "logprobs": 64})")
                .at("choices")
                .as_array()
                .size(),
            4u);
}

TEST_F(ResponseBoundsTest, AChatWithoutMaxTokensGetsWhatFits) {
  ServerConfig config;
  config.max_answer_bytes = 200000;
  start(config);
  const Json answer = post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": 20, "logit_bias": {"257": -100}})");
  EXPECT_EQ(answer.at("choices").as_array()[0].at("finish_reason").as_string(), "length");
  const int64_t written = answer.at("usage").at("completion_tokens").as_int();
  EXPECT_GT(written, 20);
  EXPECT_LT(written, 200);
}

TEST_F(ResponseBoundsTest, AStreamRejectsALongEcho) {
  start();
  const std::string message =
      refused("/v1/completions",
              concat(R"({"prompt": )", ids(400), R"(, "n": 8, "echo": true, "logprobs": 20, "stream": true})"));
  EXPECT_NE(message.find("set stream = false"), std::string::npos) << message;
}

TEST_F(ResponseBoundsTest, ALongResponseComesInPiecesAndIsTheEngines) {
  GenerationRequest request{.prompt = byte_ids(std::string(100, 'a')),
                            .n = 20,
                            .id = 0,
                            .sampling = {.max_tokens = 40, .seed = 4, .stop = {}, .stop_ids = {}},
                            .top_logprobs = 20,
                            .prompt_logprobs = true};
  const std::vector<CompletionOutput> expected = replies_to(request);
  start();
  const HttpAnswer answer =
      HttpClient(server->port())
          .post("/v1/completions", concat(R"({"prompt": ")", std::string(100, 'a'),
                                          R"(", "n": 20, "max_tokens": 40, "seed": 4, "logprobs": 20, "echo": true})"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("transfer-encoding"), "chunked");
  EXPECT_GT(answer.body.size(), 1000000u);
  const JsonArray choices = parse_json(answer.body, "answer").at("choices").as_array();
  ASSERT_EQ(choices.size(), 20u);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(choices[i].at("index").as_int(), static_cast<int64_t>(i));
    const Json& logprobs = choices[i].at("logprobs");
    const size_t size = 100 + expected[i].ids.size();
    for (const char* column : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
      ASSERT_EQ(logprobs.at(column).as_array().size(), size) << column;
    for (size_t t = 0; t < expected[i].ids.size(); ++t) {
      EXPECT_EQ(static_cast<float>(logprobs.at("token_logprobs").as_array()[100 + t].as_double()),
                expected[i].raw_logp[t]);
      EXPECT_EQ(static_cast<float>(logprobs.at("top_logprobs").as_array()[100 + t].as_object()[0].second.as_double()),
                expected[i].top_logprobs[t][0].logp);
    }
  }
  EXPECT_TRUE(all_is_free());
}

TEST_F(ResponseBoundsTest, PendingResponsesHaveACommonBound) {
  ServerConfig config;
  config.max_answer_bytes = 3000000;
  config.max_pending_bytes = 4000000;
  start(config, {.max_sequences = 1});
  const std::string body = R"({"prompt": "a", "max_tokens": 500, "ignore_eos": true, "n": 100})";  // 2.4 MB
  HttpClient first(server->port());
  first.send(post_request("/v1/completions", body));
  ASSERT_TRUE(soon([&] { return metric("hone_replies") == 100; }));
  const HttpAnswer second = HttpClient(server->port()).post("/v1/completions", body);
  EXPECT_EQ(second.status, 429) << second.body;
  EXPECT_TRUE(second.headers.contains("retry-after"));
  EXPECT_NE(second.body.find("--max-pending-bytes"), std::string::npos) << second.body;
  EXPECT_EQ(HttpClient(server->port()).post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})").status, 200)
      << "a short one has room";
  first.close();
  EXPECT_TRUE(soon([&] {
    HttpClient third(server->port());
    third.send(post_request("/v1/completions", body));
    third.read(1, 0.1);
    return metric("hone_replies") == 100;
  })) << "what the one that left took is free";
}

TEST_F(ResponseBoundsTest, ListsThatSamplingReadsAreBounded) {
  start();
  std::string biases, stops;
  for (int i = 0; i < 1025; ++i) {
    biases += concat(i ? ", " : "", "\"", i, "\": 1");
    stops += concat(i ? ", " : "", "5");
  }
  EXPECT_NE(refused("/v1/completions", concat(R"({"prompt": "a", "logit_bias": {)", biases, "}}"))
                .find("logit_bias has 1025 tokens; the maximum is 1024"),
            std::string::npos);
  EXPECT_NE(refused("/v1/completions", concat(R"({"prompt": "a", "stop_token_ids": [)", stops, "]}"))
                .find("1025 ids; the maximum is 1024"),
            std::string::npos);
}

// Numbers that are valid doubles and 0 or infinite as floats.
TEST_F(ResponseBoundsTest, NumbersOutsideFloatRangeAreRejectedAndTheNextRequestIsServed) {
  start();
  for (const char* member :
       {R"("top_p": 1e-46)", R"("top_p": 5e-324)", R"("temperature": 1e-38)", R"("temperature": 1e-46)",
        R"("temperature": 1e39)", R"("repetition_penalty": 1e-46)", R"("presence_penalty": 1e39)",
        R"("frequency_penalty": -1e39)", R"("min_p": 1e39)", R"("top_k": -2)", R"("logit_bias": {"5": 1e39})",
        R"("seed": 1e300)", R"("n": 9223372036854775807)", R"("max_tokens": 9223372036854775807)",
        R"("min_tokens": 9223372036854775807)", R"("logprobs": 9223372036854775807)", R"("temperature": 1e400)"}) {
    refused("/v1/completions", concat(R"({"prompt": "a", )", member, "}"));
    EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})").at("choices").as_array().size(), 1u);
  }
  for (const char* member :
       {R"("top_p": 1e-30)", R"("temperature": 1e-6)", R"("min_p": 1e-46)", R"("min_p": 1)",
        R"("seed": -9223372036854775808)", R"("logit_bias": {"5": 1e-46})", R"("presence_penalty": 1e-46)",
        R"("temperature": 1000000)", R"("top_k": 9223372036854775807)"})
    EXPECT_EQ(post("/v1/completions", concat(R"({"prompt": "a", "max_tokens": 3, )", member, "}"))
                  .at("choices")
                  .as_array()
                  .size(),
              1u)
        << member;
}

}  // namespace
}  // namespace hone::test
