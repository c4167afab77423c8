// A recipe names a secret by its environment variable. No file of the run and no output has the value.
#include "tests/e2e/whole_run.h"
#include "tests/support/http_server.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

const std::string recipe = tiny_rl_recipe(R"(
prompts_per_step = 2
num_generations = 2
steps = 2
sampling = { max_tokens = 4 }
reward = { kind = "http", url = "${HONE_TEST_URL}?key=${HONE_TEST_KEY}", headers = ["Authorization: Bearer ${HONE_TEST_KEY}"], retries = 0 }
)");

class SecretTest : public WholeRun {
 protected:
  SecretTest() : WholeRun(recipe) {}
  static void expect_no_secret(const std::string& text, const std::string& where) {
    EXPECT_EQ(text.find("open-sesame"), std::string::npos) << where << ": " << text;
  }
};

TEST_F(SecretTest, ItIsInNoFileAndNoOutput) {
  std::atomic<int> with_key{0}, failing{0};
  HttpServer server([&](const ReceivedRequest& request) {
    with_key += request.head.find("Bearer open-sesame") != std::string::npos;
    if (failing) return http_response("no", 500);
    return http_response("{\"rewards\": [1, 0]}");
  });
  const std::vector<std::string> environment{"HONE_TEST_URL=" + server.url(), "HONE_TEST_KEY=open-sesame"};
  const Finished dry = run_hone(arguments("dry", {"--dry-run"}), environment);
  ASSERT_EQ(dry.code, 0) << dry.err;
  expect_no_secret(dry.out + dry.err, "--dry-run");
  EXPECT_NE(dry.out.find("Bearer ${HONE_TEST_KEY}"), std::string::npos) << dry.out;

  failing = 1;
  const Finished stopped = run_hone(arguments("run"), environment);
  EXPECT_EQ(stopped.code, 1);
  expect_no_secret(stopped.out + stopped.err, "the stopped run");
  failing = 0;
  with_key = 0;
  const Finished resumed = run_hone({"run", "--resume", (folder.path() / "run").string()}, environment);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_GE(with_key, 2);  // the resumed run reads the variable again
  expect_no_secret(resumed.out + resumed.err, "the resumed run");
  size_t files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder.path() / "run"))
    if (entry.is_regular_file()) {
      expect_no_secret(read_file(entry.path()), entry.path().string());
      ++files;
    }
  EXPECT_GT(files, 5u);
  EXPECT_NE(read_file(folder.path() / "run/recipe.toml").find("Bearer ${HONE_TEST_KEY}"), std::string::npos);
}

}  // namespace
}  // namespace hone::test
