// `hone collect` with an OpenAI-compatible server: what is asked, failures, and a kill without a row twice.
#include <atomic>
#include <mutex>
#include <set>

#include "tests/e2e/collect_run.h"
#include "tests/support/http_server.h"
#include "tests/support/terminal.h"

namespace hone::test {
namespace {

std::string chat_answer(const std::string& text, const Json& more = JsonObject{}) {
  Json message = JsonObject{{"role", "assistant"}, {"content", text}};
  for (const auto& [name, value] : more.as_object()) message.set(name, value);
  return http_response(
      Json(JsonObject{{"choices", JsonArray{JsonObject{{"message", message}, {"finish_reason", "stop"}}}},
                      {"usage", JsonObject{{"prompt_tokens", 7}, {"completion_tokens", 5}}}})
          .dump());
}

class CollectEndpoint : public CollectRun {
 protected:
  std::vector<std::string> with_server(const HttpServer& server, const std::string& out,
                                       const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"collect",
                                    tasks(),
                                    "--base-url",
                                    server.url("127.0.0.1", "/v1"),
                                    "--model",
                                    "teacher",
                                    "--out",
                                    path(out).string(),
                                    "--json",
                                    "chat=auto",
                                    "endpoint.max_retry_wait=0.01",
                                    "endpoint.concurrency=4",
                                    "endpoint.max_retries=1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string prompt_of(const ReceivedRequest& request) {
    return parse_json(request.body, "body").at("messages").as_array().back().at("content").as_string();
  }
};

TEST_F(CollectEndpoint, SendsConversationsWithTheirSampling) {
  std::mutex mutex;
  std::vector<Json> bodies;
  const HttpServer server([&](const ReceivedRequest& request) {
    const Json body = parse_json(request.body, "body");
    {
      const std::lock_guard lock(mutex);
      bodies.push_back(body);
    }
    return chat_answer(concat("answer ", body.at("seed").as_int()), JsonObject{{"reasoning_content", "hm"}});
  });
  const Finished done = run_hone(with_server(server, "out",
                                             {"system=Be brief.", "sampling.stop=[]", "sampling.top_p=0.9",
                                              "sampling.presence_penalty=0.5", "threshold=0", "--limit", "3"}));
  ASSERT_EQ(done.code, 0) << done.err;
  ASSERT_EQ(bodies.size(), 12u);
  for (const Json& body : bodies) {
    EXPECT_EQ(body.at("model").as_string(), "teacher");
    EXPECT_EQ(body.at("messages").as_array().at(0).at("content").as_string(), "Be brief.");
    EXPECT_EQ(body.at("top_p").as_double(), 0.9);
    EXPECT_EQ(body.at("presence_penalty").as_double(), 0.5);
    EXPECT_EQ(body.at("max_tokens").as_int(), 24);
  }
  const Json summary = parse_json(done.out, "summary");
  EXPECT_EQ(summary.at("tokens").as_int(), 12 * 5);
  EXPECT_EQ(summary.at("sft_rows").as_int(), 12);
  for (const Json& row : rows_of(path("out") / "sft.jsonl")) {
    const Json& message = row.at("completion").as_array().at(0);
    EXPECT_EQ(message.at("content").as_string(), concat("answer ", 5 + row.at("completion_index").as_int()));
    EXPECT_EQ(message.at("reasoning_content").as_string(), "hm");
  }
}

TEST_F(CollectEndpoint, FailedRequestsAreCountedAndTriedAgain) {
  std::atomic<bool> well = false;
  std::atomic<int> asked = 0;
  const HttpServer server([&](const ReceivedRequest& request) {
    ++asked;
    if (!well && prompt_of(request) == "3+3=") return http_response("{\"error\": {\"message\": \"too long\"}}", 400);
    // One of a row's completions fails.
    if (!well && prompt_of(request) == "4+4=" && parse_json(request.body, "body").at("seed") == Json(6))
      return http_response("oops", 500);
    return chat_answer("four");
  });
  const Finished done = run_hone(with_server(server, "out"));
  ASSERT_EQ(done.code, 0) << done.err;
  Json summary = parse_json(done.out, "summary");
  EXPECT_EQ(summary.at("failed_completions").as_int(), 5);
  EXPECT_EQ(summary.at("scored").as_int(), 4 * num_rows - 5);
  EXPECT_EQ(summary.at("rows_with_failures").as_int(), 2);
  EXPECT_EQ(summary.at("duplicates").as_int(), 4 * num_rows - 5 - (num_rows - 1));
  EXPECT_EQ(summary.at("sft_rows").as_int(), num_rows - 1) << "identical completions of a prompt are one row";
  EXPECT_EQ(summary.at("tasks_without_score").as_int(), 1);
  EXPECT_NE(done.err.find("too long"), std::string::npos) << done.err;
  // The same command asks for the missing completions alone.
  well = true;
  asked = 0;
  summary = parse_json(run_hone(with_server(server, "out")).out, "summary");
  EXPECT_EQ(asked, 5);
  EXPECT_EQ(summary.at("failed_completions").as_int(), 0);
  EXPECT_EQ(summary.at("scored").as_int(), 4 * num_rows);
  EXPECT_EQ(std::ssize(rows_of(path("out") / "completions.jsonl")), num_rows);
}

TEST_F(CollectEndpoint, KilledItAsksForNoRowAgainThatWasDone) {
  std::mutex mutex;
  std::map<std::string, int> asked;
  const HttpServer server([&](const ReceivedRequest& request) {
    {
      const std::lock_guard lock(mutex);
      ++asked[prompt_of(request)];
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return chat_answer(prompt_of(request) + parse_json(request.body, "body").at("seed").dump());
  });
  kill_at(with_server(server, "killed"), path("killed"), 4);
  std::set<std::string> complete;
  for (const Json& row : rows_of(path("killed") / "completions.jsonl"))
    complete.insert(row.at("prompt").as_array().back().at("content").as_string());
  EXPECT_GE(complete.size(), 4u);
  const auto before = asked;
  const Finished done = run_hone(with_server(server, "killed"));
  ASSERT_EQ(done.code, 0) << done.err;
  for (const std::string& prompt : complete) EXPECT_EQ(asked[prompt], before.at(prompt)) << prompt;
  ASSERT_EQ(run_hone(with_server(server, "whole")).code, 0);
  expect_same_files("whole", "killed");
  std::set<std::string> ids;
  for (const Json& row : rows_of(path("killed") / "completions.jsonl"))
    EXPECT_TRUE(ids.insert(row.at("id").as_string()).second);
  EXPECT_EQ(std::ssize(ids), num_rows);
}

TEST_F(CollectEndpoint, AServerThatIsGoneOrRefusesEndsTheCommand) {
  int status = 401;
  const HttpServer server(
      [&](const ReceivedRequest&) { return http_response("{\"error\": {\"message\": \"no such key\"}}", status); });
  const Finished refused = run_hone(with_server(server, "refused"));
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("status 401: no such key"), std::string::npos) << refused.err;
  status = 503;
  const Finished gone = run_hone(with_server(server, "gone", {"num_generations=16"}));
  EXPECT_EQ(gone.code, 1);
  EXPECT_NE(gone.err.find("requests failed: failed after 2 attempts: status 503"), std::string::npos) << gone.err;
  EXPECT_NE(gone.err.find("the same command goes on"), std::string::npos) << gone.err;
  const Finished few = run_hone(with_server(server, "few", {"--limit", "2"}));
  EXPECT_EQ(few.code, 1);
  EXPECT_NE(few.err.find("all 8 completions failed; the first: "), std::string::npos) << few.err;
}

TEST_F(CollectEndpoint, HoneServeIsATeacher) {
  const Process serving({"serve", "--model", path("model").string(), "--port", "0"});
  const std::string url = concat("http://127.0.0.1:", serving.port(), "/v1");
  const Finished done = run_hone({"collect", tasks(), "--base-url", url, "--model", "model", "--out",
                                  path("out").string(), "chat=chatml", "--limit", "4"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(rows_of(path("out") / "completions.jsonl").size(), 4u);
  EXPECT_NE(done.out.find("4 of 4 rows, 16 completions"), std::string::npos) << done.out;
  EXPECT_NE(done.err.find("4/4 rows"), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("% accepted"), std::string::npos) << done.err;
}

TEST_F(CollectEndpoint, ATerminalShowsSpeedAndAcceptance) {
  const HttpServer server([&](const ReceivedRequest&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    return chat_answer("four");
  });
  Terminal terminal(with_server(server, "out"), {});
  EXPECT_TRUE(terminal.shows("collect [")) << terminal.screen();
  EXPECT_TRUE(terminal.shows("rows, ")) << terminal.screen();
  EXPECT_TRUE(terminal.shows("tokens/s, 100.0% accepted")) << terminal.screen();
  EXPECT_TRUE(terminal.shows("\"rows_done\": 12")) << terminal.screen();
  EXPECT_EQ(terminal.leave(), 0);
}

}  // namespace
}  // namespace hone::test
