// The live view's answers over HTTP; tests/e2e/watch_page_test.cpp opens the page in a browser.
#include "run/watch/watch_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/io/compressed_writer.h"
#include "core/io/file.h"
#include "core/io/folder_lock.h"
#include "core/io/json.h"
#include "tests/support/http_client.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

class WatchServerTest : public ::testing::Test {
 protected:
  WatchServerTest() {
    write("a/run.json", R"({"name": "a", "stages_done": 1, "num_stages": 2, "stages":
      [{"name": "sft", "kind": "sft", "steps": 4, "planned_steps": 4}],
      "recipe": {"seed": 7, "stage": [{"name": "sft", "kind": "sft"}, {"name": "grpo", "kind": "rl", "steps": 9}]}})");
    write("a/metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 1.5}\n{\"step\": 3, \"lo");
    write("b/recipe.toml", "");
    write("other/notes.txt", "no run");
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root.path() / name).parent_path());
    std::ofstream(root.path() / name, std::ios::binary) << text;
  }
  HttpAnswer get(const std::string& path, const std::string& headers = "") const {
    return HttpClient(server.port()).get(path, headers);
  }
  Json runs() const { return parse_json(get("/api/runs").body, "runs").at("runs"); }
  TemporaryFolder root;
  const WatchServer server{{.port = 0}, {root.path(), root.path() / "later"}};
};

TEST_F(WatchServerTest, FindsRunsAndSaysWhatTheirFilesSay) {
  const Json found = runs();
  const JsonArray& list = found.as_array();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].at("name").as_string(), "a");
  EXPECT_EQ(list[0].at("state").as_string(), "stopped");
  EXPECT_EQ(list[0].at("stages").as_array()[1].dump(),
            R"({"name": "grpo", "kind": "rl", "steps": 9, "done": false, "first_step": 4})");
  EXPECT_EQ(list[1].at("name").as_string(), "b");
  write("later/c/metrics.jsonl", "");
  EXPECT_EQ(runs().as_array().size(), 3u);
  EXPECT_EQ(runs().as_array()[2].at("id").as_int(), 2);
  const FolderLock lock(root.path() / "a");
  EXPECT_EQ(runs().as_array()[0].at("state").as_string(), "running");
  fs::remove_all(root.path() / "b");  // the other runs keep their numbers
  EXPECT_EQ(runs().as_array()[1].at("id").as_int(), 2);
}

TEST_F(WatchServerTest, RowsComeAsTheyAreWritten) {
  runs();
  const auto rows = [&](const std::string& place) { return get("/api/runs/0/metrics/" + place).body; };
  const std::string first = rows("0/0");
  const Json about = parse_json(first.substr(0, first.find('\n')), "about");
  EXPECT_EQ(first.substr(first.find('\n') + 1), "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 1.5}\n");
  const std::string place = concat(about.at("next").as_int(), "/", about.at("digest").as_string());
  std::ofstream(root.path() / "a/metrics.jsonl", std::ios::app) << "ss\": 1}\n";
  const std::string second = rows(place);
  EXPECT_EQ(second.substr(second.find('\n') + 1), "{\"step\": 3, \"loss\": 1}\n");
  write("a/metrics.jsonl", "{\"step\": 1, \"loss\": 3}\n");  // the run was resumed from an earlier checkpoint
  EXPECT_NE(rows(place).find("\"reset\": true"), std::string::npos);
  EXPECT_NE(get("/api/runs/1/metrics/0/0").body.find("\"size\": 0"), std::string::npos);
  EXPECT_EQ(parse_json(get("/api/runs/0/recipe").body, "recipe").at("seed").as_int(), 7);
  EXPECT_EQ(get("/api/runs/1/recipe").body, "null");
}

TEST_F(WatchServerTest, KeptRolloutsComeWithoutTheirTokens) {
  runs();
  EXPECT_EQ(get("/api/runs/0/rollouts").body, R"({"steps": []})");
  fs::create_directories(root.path() / "a/rollouts");
  ReplacedFile writer(root.path() / "a/rollouts/step-12.jsonl.gz");
  writer.write(R"({"step": 12, "completion": "x", "completion_ids": [1, 2], "logp": [0, 0], "reward": 1})"
               "\n");
  writer.write(R"({"step": 12, "completion": "y", "completion_ids": [3], "logp": [0], "reward": 0})"
               "\n");
  writer.finish();
  write("a/rollouts/step-x.jsonl.gz", "");
  EXPECT_EQ(get("/api/runs/0/rollouts").body, R"({"steps": [12]})");
  EXPECT_EQ(get("/api/runs/0/rollouts/12/1").body,
            "{\"next\": 2, \"end\": true}\n{\"step\": 12, \"completion\": \"y\", \"reward\": 0, \"tokens\": 1}\n");
  EXPECT_EQ(get("/api/runs/0/rollouts/13/0").status, 404);
  write("a/rollouts/step-14.jsonl.gz", "{broken");
  EXPECT_EQ(get("/api/runs/0/rollouts/14/0").status, 500);
  EXPECT_EQ(get("/api/runs").status, 200);
}

TEST_F(WatchServerTest, NoRequestNamesAFileAndNoOtherSiteReads) {
  runs();
  for (const char* path :
       {"/api/runs/0/../../secret", "/api/runs/../b", "/api/runs/0/metrics/..", "/api/runs/-1/recipe",
        "/api/runs/0/rollouts/..%2f..%2fx/0", "/api/runs/00000000000000000000000/recipe", "/recipe.toml",
        "/api/runs/0/run.json", "//etc/passwd", "/api/runs/0/metrics/0/0/0", "/api/runs/77/recipe"})
    EXPECT_EQ(get(path).status, 404) << path;
  EXPECT_EQ(HttpClient(server.port()).post("/api/runs", "{}").status, 405);
  EXPECT_EQ(get("/api/runs", "Origin: https://example.com\r\n").status, 403);
  HttpClient rebound(server.port());
  rebound.send("GET /api/runs HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(rebound.answer().status, 403);
}

TEST_F(WatchServerTest, ThePageIsWholeAndAllowsNothingFromElsewhere) {
  const HttpAnswer page = get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body, watch_page_text());
  const std::string& policy = page.headers.at("content-security-policy");
  EXPECT_NE(policy.find("default-src 'none'; script-src 'sha256-"), std::string::npos) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  for (const char* outside : {"http:", "https:", "src=", "@import", "url(", "import ", "innerHTML", " style=\""})
    EXPECT_EQ(page.body.find(outside), std::string::npos) << outside;
}

TEST(WatchServerTestHost, ListensOnThisMachineOnly) {
  const WatchServer server({.port = 0}, {});
  EXPECT_TRUE(server.url().starts_with("http://127.0.0.1:"));
}

}  // namespace
}  // namespace hone::test
