// Log-probs of given tokens from a server: both APIs, retries, and everything that must not become a 0.
#include "posttrain/teacher/prompt_logprobs_api.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/rollout/byte_model.h"
#include "tests/support/errors.h"
#include "tests/support/http_server.h"

namespace hone::test {
namespace {

const std::vector<std::vector<int32_t>> sequences = {{'a', 'b', 'c'}, {'d', 'e'}, {'f'}, {}};

Json choice_response(Json choice) { return JsonObject{{"choices", JsonArray{std::move(choice)}}}; }

// An entry of vLLM's prompt_logprobs: the token's log-prob is -id / 100, and two more tokens.
Json vllm_entry(int64_t id, const std::string& text) {
  const auto token = [](double logp, const std::string& decoded) {
    return JsonObject{{"logprob", logp}, {"rank", 1}, {"decoded_token", decoded}};
  };
  return JsonObject{{std::to_string(id), token(-static_cast<double>(id) / 100, text)},
                    {"7", token(-0.5, "?")},
                    {"8", token(-0.25, "?")}};
}

Json vllm_response(const Json& body) {
  JsonArray entries{Json()};
  const JsonArray& ids = body.at("prompt").as_array();
  for (size_t t = 1; t < ids.size(); ++t)
    entries.push_back(vllm_entry(ids[t].as_int(), std::string(1, static_cast<char>(ids[t].as_int()))));
  return choice_response(JsonObject{{"text", "x"}, {"prompt_logprobs", std::move(entries)}});
}

// The echo of a prompt with one more token, as servers return it that generate at least one.
Json echo_response(const Json& body) {
  JsonArray texts, logprobs;
  for (const Json& id : body.at("prompt").as_array()) {
    texts.emplace_back(std::string(1, static_cast<char>(id.as_int())));
    logprobs.push_back(logprobs.empty() ? Json() : Json(-static_cast<double>(id.as_int()) / 100));
  }
  texts.emplace_back("z");
  logprobs.emplace_back(-9.0);
  return choice_response(
      JsonObject{{"text", "x"}, {"logprobs", JsonObject{{"tokens", texts}, {"token_logprobs", logprobs}}}});
}

class PromptLogprobsApiTest : public ::testing::Test {
 protected:
  using Respond = std::function<std::string(const Json& body)>;
  // Starts a server and asks it for the sequences.
  std::vector<ServedLogprobs> ask(const Respond& respond, const std::string& api, int64_t top = 0) {
    HttpServer server([&](const ReceivedRequest& request) {
      ++requests_;
      return respond(parse_json(request.body, "request"));
    });
    TeacherEndpoint config;
    config.base_url = server.url("127.0.0.1", "/v1");
    config.model = "teacher";
    config.max_retries = 2;
    config.max_retry_wait = 0.01;
    config.api = api;
    config.concurrency = 3;
    return PromptLogprobsApi(config, tokenizer_).logprobs(sequences, top);
  }
  std::string problem(const Respond& respond, const std::string& api, int64_t top = 0) {
    return error_of([&] { ask(respond, api, top); });
  }
  static void expect_logprobs(const std::vector<ServedLogprobs>& out) {
    ASSERT_EQ(out.size(), sequences.size());
    for (size_t s = 0; s < 3; ++s) {
      ASSERT_EQ(out[s].logp.size(), sequences[s].size());
      EXPECT_EQ(out[s].logp[0], 0);
      for (size_t t = 1; t < sequences[s].size(); ++t)
        EXPECT_EQ(out[s].logp[t], static_cast<float>(-static_cast<double>(sequences[s][t]) / 100));
    }
    EXPECT_TRUE(out[3].logp.empty());
  }
  std::atomic<int> requests_ = 0;
  Tokenizer tokenizer_ = byte_tokenizer();
};

std::string ok(const Json& json) { return http_response(json.dump()); }

TEST_F(PromptLogprobsApiTest, BothApisGiveTheTokensLogProbs) {
  expect_logprobs(ask(
      [](const Json& body) {
        EXPECT_EQ(body.at("prompt_logprobs").as_int(), 0);
        EXPECT_EQ(body.at("model").as_string(), "teacher");
        return ok(vllm_response(body));
      },
      "vllm"));
  expect_logprobs(ask(
      [](const Json& body) {
        EXPECT_TRUE(body.at("echo").as_bool());
        return ok(echo_response(body));
      },
      "echo"));
}

TEST_F(PromptLogprobsApiTest, AutoTakesTheOneThatTheServerKnows) {
  const auto only_echo = [](const Json& body) {
    if (body.find("prompt_logprobs")) return http_response(R"({"error": {"message": "unknown member"}})", 400);
    return ok(echo_response(body));
  };
  expect_logprobs(ask(only_echo, "auto"));
  EXPECT_EQ(requests_, 5);  // both once, then one for each sequence
  expect_logprobs(ask([](const Json& body) { return ok(vllm_response(body)); }, "auto"));
  const std::string none = problem([](const Json&) { return ok(choice_response(JsonObject{{"text", "x"}})); }, "auto");
  EXPECT_NE(none.find("api = \"vllm\": the server returns no prompt_logprobs"), std::string::npos) << none;
  EXPECT_NE(none.find("api = \"echo\": the server returns no token_logprobs"), std::string::npos) << none;
}

TEST_F(PromptLogprobsApiTest, TheMostLikelyTokensAreInOrder) {
  const std::vector<ServedLogprobs> out = ask([](const Json& body) { return ok(vllm_response(body)); }, "vllm", 2);
  EXPECT_TRUE(out[0].top[0].empty());
  EXPECT_EQ(out[0].top[1], (std::vector<std::pair<int32_t, float>>{{8, -0.25f}, {7, -0.5f}}));
  EXPECT_NE(problem([](const Json& body) { return ok(echo_response(body)); }, "echo", 2).find("need a server with"),
            std::string::npos);
}

TEST_F(PromptLogprobsApiTest, FailuresThatPassAreRepeated) {
  std::atomic<int> count = 0;
  expect_logprobs(
      ask([&](const Json& body) { return ++count % 2 == 1 ? http_response("busy", 503) : ok(vllm_response(body)); },
          "vllm"));
  const std::string lost = problem([](const Json&) { return http_response("down", 500); }, "vllm");
  EXPECT_NE(lost.find("distill: the teacher at http://127.0.0.1:"), std::string::npos) << lost;
  EXPECT_NE(lost.find("failed after 3 attempts: status 500"), std::string::npos) << lost;
}

TEST_F(PromptLogprobsApiTest, AMissingLogProbIsAnError) {
  const auto changed = [](const char* name, Json value) {
    return [=](const Json& body) {
      Json response = echo_response(body);
      Json choice = response.at("choices").as_array()[0], logprobs = choice.at("logprobs");
      JsonArray entries = logprobs.at(name).as_array();
      if (entries.size() > 2) entries[1] = value;
      logprobs.set(name, entries);
      choice.set("logprobs", logprobs);
      return ok(choice_response(choice));
    };
  };
  EXPECT_NE(problem(changed("token_logprobs", Json()), "echo").find("token 1 has no log-prob"), std::string::npos);
  EXPECT_NE(problem(changed("token_logprobs", 0.5), "echo").find("the log-prob of token 1 is 0.5"), std::string::npos);
  const std::string text = problem(changed("tokens", "q"), "echo");
  EXPECT_NE(text.find("is \"q\" on the server and"), std::string::npos) << text;
  EXPECT_NE(text.find("both need the same tokenizer"), std::string::npos) << text;
}

TEST_F(PromptLogprobsApiTest, AnotherVocabularyIsAnError) {
  const std::string other_id = problem(
      [](const Json& body) {
        JsonArray entries{Json()};
        for (size_t t = 1; t < body.at("prompt").as_array().size(); ++t) entries.push_back(vllm_entry(200, "b"));
        return ok(choice_response(JsonObject{{"prompt_logprobs", entries}}));
      },
      "vllm");
  EXPECT_NE(other_id.find("lack its id "), std::string::npos) << other_id;
  EXPECT_EQ(other_id.find("attempts"), std::string::npos) << "a retry cannot help: " << other_id;
  const std::string fewer = problem(
      [](const Json&) {
        return ok(choice_response(JsonObject{{"prompt_logprobs", JsonArray{Json()}}}));
      },
      "vllm");
  EXPECT_NE(fewer.find("log-probs of 1 tokens for a prompt of"), std::string::npos) << fewer;
  const std::string by_id = problem(
      [](const Json& body) {
        Json response = echo_response(body);
        JsonArray texts{"token_id:97", "token_id:5", "token_id:6", "token_id:7"};
        Json choice = response.at("choices").as_array()[0], logprobs = choice.at("logprobs");
        logprobs.set("tokens", texts);
        choice.set("logprobs", logprobs);
        return ok(choice_response(choice));
      },
      "echo");
  EXPECT_NE(by_id.find("is id 5 on the server"), std::string::npos) << by_id;
}

}  // namespace
}  // namespace hone::test
