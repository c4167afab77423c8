// The live view in a headless Chromium, used like a person does. Skipped visibly without the browser.
#include <gtest/gtest.h>

#include <fstream>

#include "core/io/compressed_writer.h"
#include "tests/support/browser.h"
#include "tests/support/process.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

class WatchPageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    program = Browser::program();
    if (!program) GTEST_SKIP() << "no Chromium here (Debian: apt-get install chromium)";
    for (const char* name : {"first", "second"}) {
      fs::create_directories(folder.path() / name);
      append(name, "metrics.jsonl", rows(1, 40));
      for (int i = 0; i < 60; ++i)
        append(name, "samples.jsonl",
               concat(R"({"step": )", i + 1, R"(, "task": "t)", i, R"(", "prompt": "What is )", i,
                      R"(?", "completion": "<img src=x> )", i == 7 ? "needle" : "hay", R"(", "answer": "", )",
                      R"("finish_reason": "stop", "reward": )", i % 2, R"(, "rewards": {"math": 1}})", "\n"));
      std::ofstream(folder.path() / name / "run.json")
          << R"({"name": "x", "stages_done": 0, "num_stages": 1, "stages": [], "recipe": {"seed": ")" << name
          << R"(", "stage": [{"name": "grpo", "kind": "rl", "steps": 100}]}})";
    }
    append("first", "metrics.jsonl", "{\"step\": 999, \"rew");  // the process was killed in the middle of a row
    fs::create_directories(folder.path() / "first/rollouts");
    ReplacedFile writer(folder.path() / "first/rollouts/step-3.jsonl.gz");
    writer.write(R"({"step": 3, "prompt": "p", "completion": "kept", "reward": 1, "advantage": 0.5})"
                 "\n");
    writer.finish();
  }
  static std::string rows(int first, int last) {
    std::string out;
    for (int step = first; step <= last; ++step)
      out += concat(R"({"step": )", step, R"(, "stage": 0, "reward": )", 0.01 * step,
                    R"(, "entropy": 1, "odd/metric": 2, )",
                    R"("step_time": 1, "time/sampling": 0.5, "time/forward": 0.25, "workers/0/tokens_per_second": 9, )",
                    R"("workers/0/idle_ratio": 0.5})", "\n");
    return out;
  }
  void append(const std::string& run, const std::string& file, const std::string& text) const {
    std::ofstream(folder.path() / run / file, std::ios::app) << text;
  }
  TemporaryFolder folder;
  std::optional<std::string> program;
};

TEST_F(WatchPageTest, ShowsFollowsSearchesAndCompares) {
  const Process watching({"watch", folder.path().string(), "--port", "0"});
  Browser browser(*program, concat("http://127.0.0.1:", watching.port(), "/"));
  const auto text = [&](const std::string& selector) {
    return browser
        .evaluate(concat("[...document.querySelectorAll('", selector, "')].map(e => e.textContent).join(';')"))
        .as_string();
  };
  const auto count = [&](const std::string& selector) {
    return browser.evaluate(concat("document.querySelectorAll('", selector, "').length")).as_int();
  };
  ASSERT_TRUE(soon([&] { return text("#runs b") == "first;second"; })) << text("#runs");
  ASSERT_TRUE(soon([&] { return text("#curves figcaption b").find("Reward;Entropy") != std::string::npos; }))
      << text("#curves");
  const std::string label = "document.querySelector('#curves canvas').getAttribute('aria-label')";
  EXPECT_NE(browser.evaluate(label).as_string().find("first: first 0.01, last"), std::string::npos);
  EXPECT_EQ(text(".tile b").find("40"), text(".tile b").find(";") + 1) << text(".tile b");

  append("first", "metrics.jsonl", "ard\": 1}\n" + rows(41, 50));  // the row is whole, and more follow
  EXPECT_TRUE(soon([&] { return text("#runs small").find("step 999") != std::string::npos; })) << text("#runs");
  std::ofstream(folder.path() / "first" / "metrics.jsonl") << rows(1, 20);  // resumed from an earlier checkpoint
  EXPECT_TRUE(soon([&] { return text("#runs small").find("step 20;") != std::string::npos; })) << text("#runs");

  browser.point_at("#curves canvas");
  EXPECT_TRUE(soon([&] { return text("#tip").find("step") == 0; })) << text("#tip");
  browser.click("#menu");  // the window is narrow: runs and settings are behind a button
  browser.type("#find-metric", "odd");
  EXPECT_TRUE(soon([&] { return text("#curves figcaption b") == "odd/metric"; })) << text("#curves");

  browser.click("#menu");
  browser.click("[data-tab=samples]");
  ASSERT_TRUE(soon([&] { return count(".sample") == 40; })) << text("#samples");
  EXPECT_EQ(count("img"), 0);  // text of the model is never HTML
  browser.type("#samples input[type=search]", "needle");
  EXPECT_TRUE(soon([&] { return count(".sample") == 1 && text(".sample mark") == "needle"; })) << text("#samples");
  EXPECT_NE(text("#samples output").find("1 of 60 samples"), std::string::npos) << text("#samples output");
  browser.type("#samples input[type=search]", "");
  browser.evaluate(
      "(() => { const source = document.querySelectorAll('#samples select')[1]; source.value = '3'; "
      "source.dispatchEvent(new Event('change')); })()");
  EXPECT_TRUE(soon([&] { return text(".sample").find("kept") != std::string::npos && count(".sample") == 1; }));
  EXPECT_NE(text(".sample .chip").find("advantage 0.5"), std::string::npos) << text(".sample");

  browser.click("[data-tab=system]");
  EXPECT_TRUE(soon([&] { return text("#system h3").find("Workers") != std::string::npos; })) << text("#system");
  EXPECT_NE(text("#system .legend").find("samplingforwardother"), std::string::npos) << text("#system .legend");
  browser.click("[data-tab=compare]");
  EXPECT_TRUE(soon([&] { return text("#compare tr").find("seed\"first\"\"second\"") != std::string::npos; }))
      << text("#compare");
  for (const std::string& complaint : browser.complaints()) ADD_FAILURE() << complaint;
}

}  // namespace
}  // namespace hone::test
