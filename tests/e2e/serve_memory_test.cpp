// `hone serve` and memory: no request takes a gigabyte, and without free memory a request fails and the server keeps
// running.
#include <gtest/gtest.h>

#include <set>

#include "tests/serve/tiny_server.h"
#include "tests/support/http_client.h"
#include "tests/support/process.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

struct Asked {
  std::string name, path, body;
};

class ServeMemoryTest : public ::testing::Test {
 protected:
  ServeMemoryTest() { TinyModel().save(folder.path() / "tiny"); }
  std::vector<std::string> arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> out{"serve", "--model", (folder.path() / "tiny").string(), "--port", "0"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  // Returns the status of the response, whose body is read and dropped.
  static int status_of(int64_t port, const Asked& asked) {
    const HttpClient client(port);
    client.send(post_request(asked.path, asked.body, "Connection: close\r\n"));
    const std::string first = client.read(65536, 300);
    for (std::string more = first; !more.empty();) more = client.read(65536, 300);
    return first.size() < 12 ? 0 : std::stoi(first.substr(9, 3));
  }
  static Asked small() { return {"a small one", "/v1/completions", R"({"prompt": "a", "max_tokens": 4})"}; }
  static std::string list(const std::string& item, size_t count) {
    std::string out = "[" + item;
    for (size_t i = 1; i < count; ++i) out += "," + item;
    return out + "]";
  }
  // Requests with the largest memory of their kind: n, echo, log-probs, prompts, the body itself.
  static std::vector<Asked> large(int64_t top) {
    const std::string completions = "/v1/completions", chat = "/v1/chat/completions", ids = list("65", 400);
    const std::string message =
        R"({"messages": [{"role": "user", "content": "a"}], "logit_bias": {"257": -100}, "n": 1024, "max_tokens": 34, "logprobs": true, )";
    const std::string echo = concat(R"({"n": 1024, "echo": true, "logprobs": )", top, R"(, "prompt": )", ids);
    return {
        {"echo", completions, echo + "}"},
        {"echo in a stream", completions, echo + R"(, "stream": true})"},
        {"a scored prompt", completions, echo + R"(, "max_tokens": 0})"},
        {"many prompts", completions,
         concat(R"({"echo": true, "logprobs": )", top, R"(, "prompt": )", list(ids, 1000),
                R"(, "max_tokens": 2, "return_token_ids": true})")},
        {"a chat's likeliest", chat, message + R"("top_logprobs": 64})"},
        {"a chat's likeliest in a stream", chat, message + R"("top_logprobs": 64, "stream": true})"},
        {"a prompt of all ids that a body holds", completions, concat(R"({"prompt": )", list("1", 4000000), "}")},
        {"a prompt of all lists that a body holds", completions, concat(R"({"prompt": )", list("[]", 2700000), "}")},
        {"a text as long as a body", completions, concat(R"({"prompt": ")", std::string(8000000, 'a'), R"("})")},
        {"members as many as a body holds", completions,
         concat(R"({"prompt": "a", "logit_bias": {"1": 1)",
                [] {
                  std::string out;
                  for (int i = 0; i < 1000000; ++i) out += R"(,"2":1)";
                  return out;
                }(),
                "}}")},
    };
  }
  TemporaryFolder folder;
};

TEST_F(ServeMemoryTest, NoRequestTakesAGigabyte) {
  Process serving(arguments());
  const int64_t port = serving.port();
  ASSERT_EQ(status_of(port, small()), 200);
  const int64_t before = serving.status_bytes("VmHWM");
  ASSERT_GT(before, 0);
  bool whole = false;
  for (const int64_t top : {64, 9})
    for (const Asked& asked : large(top)) {
      const int status = status_of(port, asked);
      EXPECT_TRUE(status == 200 || status == 400) << asked.name << ": " << status;
      whole |= status == 200 && asked.name == "echo";
      EXPECT_LT(serving.status_bytes("VmHWM") - before, int64_t{1} << 30) << asked.name;
    }
  EXPECT_TRUE(whole) << "an answer within the bound is given";
  EXPECT_EQ(status_of(port, small()), 200);
}

TEST_F(ServeMemoryTest, WithoutMemoryARequestFailsAndTheNextIsServed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more addresses than any limit leaves, and ends the process itself";
#endif
  int64_t addresses = 0;
  {
    const Process serving(arguments());
    ASSERT_EQ(status_of(serving.port(), small()), 200);
    addresses = serving.status_bytes("VmPeak");
  }
  for (const int64_t more : {64, 128}) {
    SCOPED_TRACE(more);
    const std::string limit = concat("ulimit -v ", addresses / 1024 + more * 1024, "; exec \"$@\"");
    Process serving(arguments({"--max-answer-bytes", "8000000000", "--max-pending-bytes", "8000000000"}), {}, "",
                    {"bash", "-c", limit, "bash"});
    const int64_t port = serving.port();
    ASSERT_EQ(status_of(port, small()), 200);
    std::set<int> statuses;
    for (const Asked& asked : large(64)) {
      const int status = status_of(port, asked);
      statuses.insert(status);
      EXPECT_TRUE(status == 200 || status == 400 || status == 500 || status == 503) << asked.name << ": " << status;
      ASSERT_FALSE(serving.ends_within(0)) << asked.name << " ended the server: " << serving.err();
      ASSERT_EQ(status_of(port, small()), 200) << "after " << asked.name << ": " << serving.err();
    }
    EXPECT_TRUE(statuses.contains(500)) << "the limit was none";
  }
}

}  // namespace
}  // namespace hone::test
