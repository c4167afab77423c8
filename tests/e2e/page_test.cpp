// The page at "/" in a headless Chromium, used like a person does. Skipped visibly without the browser.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/rollout/byte_model.h"
#include "tests/support/browser.h"
#include "tests/support/http_client.h"
#include "tests/support/process.h"

namespace hone::test {
namespace {

TEST(PageTest, APromptGetsTokensWithTheirProbabilities) {
  const std::optional<std::string> program = Browser::program();
  if (!program) GTEST_SKIP() << "no Chromium here (Debian: apt-get install chromium)";
  const TemporaryFolder folder;
  TinyModel().save(folder.path() / "tiny");
  std::ofstream(folder.path() / "keys") << "secret\n";
  const Process serving({"serve", "--model", (folder.path() / "tiny").string(), "--port", "0", "--api-key-file",
                         (folder.path() / "keys").string()});
  const int64_t port = serving.port();

  Browser browser(*program, concat("http://127.0.0.1:", port, "/"));
  const auto text_of = [&](const std::string& selector) {
    return browser.evaluate(concat("document.querySelector('", selector, "').textContent")).as_string();
  };
  const auto count = [&](const std::string& selector) {
    return browser.evaluate(concat("document.querySelectorAll('", selector, "').length")).as_int();
  };
  EXPECT_TRUE(soon([&] { return text_of("#status").find("an API key is needed") == 0; })) << text_of("#status");
  browser.type("#key", "secret");
  browser.type("#max_tokens", "7");
  browser.type("#seed", "5");
  browser.type("#alternatives", "3");
  browser.click("#echo");
  const std::string prompt = "<img src=x>";
  browser.type("#prompt", prompt);
  EXPECT_TRUE(soon([&] { return text_of("#model") == "tiny"; }));
  browser.click("#write");
  ASSERT_TRUE(soon([&] { return text_of("#status").find("ended by") != std::string::npos; })) << text_of("#status");

  const HttpAnswer asked = HttpClient(port).post(
      "/v1/completions",
      concat(R"({"max_tokens": 7, "seed": 5, "logprobs": 3, "echo": true, "prompt": ")", prompt, "\"}"),
      "Authorization: Bearer secret\r\n");
  const Json logprobs = parse_json(asked.body, "answer").at("choices").as_array()[0].at("logprobs");
  const JsonArray& logp = logprobs.at("token_logprobs").as_array();
  ASSERT_GT(logp.size(), prompt.size());
  ASSERT_EQ(count(".token"), static_cast<int64_t>(logp.size()));
  EXPECT_EQ(count(".token.prompt"), static_cast<int64_t>(prompt.size()));
  EXPECT_EQ(count("img"), 0);  // text of the model or the user is never HTML
  const Json shown =
      browser.evaluate("[...document.querySelectorAll('.token')].map(t => Number(t.dataset.probability))");
  for (size_t t = 1; t < logp.size(); ++t)
    EXPECT_NEAR(shown.as_array()[t].as_double(), std::exp(logp[t].as_double()), 1e-12) << t;
  EXPECT_EQ(text_of(".token"), "<");

  browser.point_at(".token:nth-child(3)");
  ASSERT_TRUE(soon([&] { return count("#token tr") > 0; }));
  const auto alternatives = static_cast<int64_t>(logprobs.at("top_logprobs").as_array()[2].as_object().size());
  EXPECT_EQ(count("#token tr"), alternatives);
  EXPECT_EQ(text_of("#token tr.drawn td"), "\"m\"");
  browser.click(".token:nth-child(4)");
  browser.point_at(".token:nth-child(2)");
  EXPECT_EQ(text_of("#token tr.drawn td"), "\"g\"");  // a click keeps it

  browser.evaluate(
      "document.querySelector('#kind').value = 'chat/completions'; document.querySelector('#kind').dispatchEvent(new "
      "Event('change'))");
  browser.click("#write");
  ASSERT_TRUE(soon([&] {
    return text_of("#status").find("ended by") != std::string::npos && count(".token.prompt") == 0;
  })) << text_of("#status");
  EXPECT_GT(count(".token"), 0);
  for (const std::string& complaint : browser.complaints())
    EXPECT_NE(complaint.find("401"), std::string::npos) << complaint;  // before a key was set
}

}  // namespace
}  // namespace hone::test
