// Environments with OpenEnv's HTTP interface.
#include <gtest/gtest.h>

#include "core/config/config.h"
#include "posttrain/rl/environments/environment.h"
#include "tests/support/errors.h"
#include "tests/support/http_server.h"

namespace hone::test {
namespace {

bool says(const std::string& message, const std::string& words) { return message.find(words) != std::string::npos; }

EnvironmentConfig config(const std::string& url, const std::string& more = "") {
  return Config::from_text("kind = \"http\"\nurls = [\"" + url + "\"]\n" + more, "test").as<EnvironmentConfig>();
}

struct HttpEnvironmentTest : ::testing::Test {
  HttpEnvironmentTest() {
    task.prompt = "Play.";
    task.columns = JsonObject{{"secret", 3}};
  }
  Task task;
};

TEST_F(HttpEnvironmentTest, PlaysAnEpisode) {
  std::vector<std::string> heads;
  std::vector<Json> bodies;
  HttpServer server([&](const ReceivedRequest& request) {
    heads.push_back(request.head.substr(0, request.head.find(" HTTP")));
    bodies.push_back(parse_json(request.body, "request"));
    if (heads.back() == "POST /env/reset")
      return http_response(R"({"observation": {"message": "Guess."}, "reward": null, "done": false})");
    const bool right = bodies.back().at("action").dump().find('3') != std::string::npos;
    return http_response(right ? R"({"observation": {"result": "yes"}, "reward": 1.0, "done": true})"
                               : R"({"observation": {"message": "lower"}, "reward": 0, "done": false})");
  });
  const EnvironmentConfig settings = config(server.url("127.0.0.1", "/env/"));
  const std::unique_ptr<Environment> game = settings.environment->make(5);
  EXPECT_EQ(game->reset(task, 7).observation, "Guess.");
  EXPECT_EQ(bodies[0].at("seed"), Json(7));
  EXPECT_EQ(bodies[0].at("row").at("secret"), Json(3));
  const EpisodeStep wrong = game->step({.completion = "say \"5\""});
  EXPECT_EQ(bodies[1].at("action"), Json(JsonObject{{"message", "say \"5\""}}));
  EXPECT_EQ(bodies[1].at("episode_id"), bodies[0].at("episode_id"));
  EXPECT_EQ(wrong.messages.at(0).role, "user");
  EXPECT_EQ(wrong.messages.at(0).content, "lower");
  EXPECT_EQ(wrong.reward, 0);
  const EpisodeStep right = game->step({.tool_calls = {{.name = "guess", .arguments = JsonObject{{"number", 3}}}}});
  EXPECT_EQ(bodies[2].at("action"),
            parse_json(R"({"type": "call_tool", "tool_name": "guess", "arguments": {"number": 3}})", "a"));
  EXPECT_TRUE(right.done);
  EXPECT_EQ(right.reward, 1);
  EXPECT_EQ(right.messages.at(0).role, "tool");
  EXPECT_EQ(heads, (std::vector<std::string>{"POST /env/reset", "POST /env/step", "POST /env/step"}));
}

TEST_F(HttpEnvironmentTest, ActionsAndObservationsHaveTheFormThatTheRecipeSays) {
  Json action;
  HttpServer server([&](const ReceivedRequest& request) {
    if (request.head.starts_with("POST /step")) action = parse_json(request.body, "request").at("action");
    return http_response(R"({"observation": {"board": [1, 2], "text": "x"}, "done": false})");
  });
  const EnvironmentConfig settings = config(
      server.url("127.0.0.1", ""), "action = '{\"code\": \"# {completion}\", \"n\": 1}'\nobservation = \"board\"\n");
  const std::unique_ptr<Environment> game = settings.environment->make(5);
  EXPECT_EQ(game->reset(task, 7).observation, "[1, 2]");
  EXPECT_FALSE(game->step({.completion = "go"}).reward);
  EXPECT_EQ(action, Json(JsonObject{{"code", "# go"}, {"n", 1}}));
}

// A server whose state has a score. It says another episode_id after `stolen` requests.
TEST_F(HttpEnvironmentTest, StateTellsEpisodesApartAndHasTheReward) {
  std::string episode;
  std::vector<std::string> states;
  int requests = 0, stolen = 100;
  HttpServer server([&](const ReceivedRequest& request) {
    const std::string line = request.head.substr(0, request.head.find(" HTTP"));
    if (line.starts_with("GET")) {
      states.push_back(line);
      EXPECT_TRUE(request.body.empty());
      const std::string id = ++requests > stolen ? "other" : episode;
      return http_response(Json(JsonObject{{"episode_id", id}, {"step_count", 1}, {"score", 0.25}}).dump());
    }
    const Json body = parse_json(request.body, "request");
    episode = body.at("episode_id").as_string();
    const bool done = line == "POST /step" && body.at("action").dump().find("end") != std::string::npos;
    return http_response(Json(JsonObject{{"observation", "x"}, {"reward", 1}, {"done", done}}).dump());
  });
  const EnvironmentConfig settings =
      config(server.url("127.0.0.1", ""), "check_state = true\nstate_reward = \"score\"\n");
  const std::unique_ptr<Environment> game = settings.environment->make(5);
  game->reset(task, 7);
  EXPECT_EQ(game->step({.completion = "go"}).reward, 1);
  EXPECT_EQ(game->step({.completion = "end"}).reward, 0.25);
  EXPECT_EQ(states, std::vector<std::string>(3, "GET /state?episode_id=" + episode));
  game->reset(task, 7);
  EXPECT_EQ(game->finish("max_turns"), 0.25);
  stolen = requests + 1;
  game->reset(task, 7);
  const std::string error = error_of([&] { game->step({.completion = "go"}); });
  EXPECT_TRUE(says(error, "/state: the server plays the episode \"other\", not hone-")) << error;

  const EnvironmentConfig no_member = config(server.url("127.0.0.1", ""), "state_reward = \"points\"\n");
  const std::unique_ptr<Environment> other = no_member.environment->make(5);
  stolen = requests + 100;
  other->reset(task, 7);
  EXPECT_TRUE(says(error_of([&] { other->step({.completion = "end"}); }), "no member points"));
}

TEST_F(HttpEnvironmentTest, WhatIsNoAnswerIsAnError) {
  std::string bytes;
  HttpServer server([&](const ReceivedRequest&) { return bytes; });
  const EnvironmentConfig settings = config(server.url("127.0.0.1", ""));
  for (const auto& [answer, words] : {std::pair(http_response("{}"), "the answer has no observation: {}"),
                                      {http_response("hello"), "the answer is not JSON: hello"},
                                      {http_response("no", 500), "status 500: no"},
                                      {http_response("[]"), "the answer has no observation"}}) {
    bytes = answer;
    const std::string error = error_of([&] { settings.environment->make(5)->reset(task, 7); });
    EXPECT_TRUE(says(error, words)) << error;
  }
}

TEST_F(HttpEnvironmentTest, AServerHasOneEpisodeAtATime) {
  EXPECT_EQ(config("http://127.0.0.1:1").environment->max_concurrent(), 1);
  EXPECT_EQ(config("http://127.0.0.1:1", "episodes_per_server = 6\n").environment->max_concurrent(), 6);
  EXPECT_TRUE(says(error_of([] { config("ftp://x"); }), "ftp"));
  EXPECT_TRUE(
      says(error_of([] { config("http://x", "action = '3'\n"); }), "action must be the JSON text of an object"));
}

}  // namespace
}  // namespace hone::test
