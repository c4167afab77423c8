// Misbehaving and slow clients: each gets an error or is dropped in time, the next client is served, and all resources
// are freed.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "tests/serve/server_fixture.h"

namespace hone {
namespace {

using test::HttpAnswer;
using test::HttpClient;
using test::post_request;
using test::soon;

class ServerClientsTest : public test::ServerFixture {
 protected:
  void expect_served() {
    EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})").at("choices").as_array().size(), 1u);
    EXPECT_TRUE(all_is_free());
  }
  // A long completion with a large response.
  static std::string long_request(const char* more = "") {
    return post_request(
        "/v1/completions",
        concat(R"({"prompt": "a", "max_tokens": 500, "ignore_eos": true, "logprobs": 20, "stream": true)", more, "}"));
  }
};

struct BadBytes {
  const char* name;
  std::string bytes;
  std::set<int> statuses;  // the possible statuses; 0: the connection is closed without a response
};

std::vector<BadBytes> bad_bytes() {
  const std::string host = "Host: localhost\r\n",
                    post = "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n" + host,
                    chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string zero(1, '\0');
  return {
      {"a chunk's size is no number", chunked + "xyz\r\nabc\r\n0\r\n\r\n", {400}},
      {"a chunk's size does not fit", chunked + "FFFFFFFFFFFFFFFFFF\r\nabc\r\n", {400}},
      {"a chunk's size is more than a body may have", chunked + "7FFFFFFFFFFFFFFF\r\nabc\r\n", {400, 413}},
      {"a chunk's size is negative", chunked + "-1\r\nabc\r\n", {400}},
      {"a chunk is longer than it says", chunked + "2\r\nabcdef\r\n0\r\n\r\n", {400}},
      {"no end of line after a chunk's size", chunked + "3 3 3\r\nabc\r\n", {400}},
      {"a length that is negative", post + "Content-Length: -1\r\n\r\n", {400}},
      {"a length that is no number", post + "Content-Length: 1e3\r\n\r\n", {400}},
      {"a length that does not fit", post + "Content-Length: 99999999999999999999999\r\n\r\n", {400}},
      {"a length that no body has", post + "Content-Length: 9223372036854775807\r\n\r\n", {413}},
      {"two lengths", post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", {400}},
      {"a length and chunks",
       post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
       {400}},
      {"chunks and a length",
       post + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
       {400}},
      {"a header of a thousand lines",
       post +
           [] {
             std::string lines;
             for (int i = 0; i < 1000; ++i) lines += concat("X-", i, ": ", std::string(30, 'x'), "\r\n");
             return lines;
           }() +
           "\r\n",
       {431}},
      {"a header of one long line", post + "X: " + std::string(100000, 'x'), {431}},
      {"a target that is too long", "GET /" + std::string(100000, 'x') + " HTTP/1.1\r\n" + host + "\r\n", {431}},
      {"a zero byte in the target", "GET /v1/mo" + zero + "dels HTTP/1.1\r\n" + host + "\r\n", {400}},
      {"a zero byte in a header's name", "GET /health HTTP/1.1\r\n" + host + "X-" + zero + ": 1\r\n\r\n", {400}},
      {"a zero byte in a header's value", "GET /health HTTP/1.1\r\n" + host + "X: a" + zero + "b\r\n\r\n", {400}},
      {"nothing but zero bytes", std::string(4096, '\0'), {400}},
      {"a space before the colon", "GET /health HTTP/1.1\r\n" + host + "X : 1\r\n\r\n", {400}},
      {"a header without a colon", "GET /health HTTP/1.1\r\n" + host + "nothing\r\n\r\n", {400}},
      {"a header without a name", "GET /health HTTP/1.1\r\n" + host + ": 1\r\n\r\n", {400}},
      {"another version", "GET /health HTTP/3.0\r\n" + host + "\r\n", {400}},
      {"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400}},
      {"a greeting of TLS",
       std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(500, '\x7f'),
       {400}},
      {"an unknown method", "BREW /v1/completions HTTP/1.1\r\n" + host + "\r\n", {405}},
      {"a path with dots", "GET /../../etc/passwd HTTP/1.1\r\n" + host + "\r\n", {404}},
      {"a target that is an address", "GET http://example.com/ HTTP/1.1\r\n" + host + "\r\n", {404}},
      {"no target", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", {404}},
  };
}

TEST_F(ServerClientsTest, BadBytesAreRejected) {
  start();
  for (const BadBytes& one : bad_bytes()) {
    HttpClient client(server->port());
    client.send(one.bytes);
    const HttpAnswer answer = client.answer();
    EXPECT_TRUE(one.statuses.contains(answer.status)) << one.name << ": " << answer.status << " " << answer.body;
  }
  expect_served();
}

TEST_F(ServerClientsTest, AnyPrefixOfARequestIsHarmless) {
  start({.http = {.request_timeout = 0.5, .body_timeout = 0.5}});
  const std::string whole = post_request("/v1/completions", R"({"prompt": "a", "max_tokens": 1})");
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (size_t length = 0; length < whole.size(); ++length) {
    clients.push_back(std::make_unique<HttpClient>(server->port()));
    clients.back()->send(whole.substr(0, length));
    if (length % 3 == 1) clients.back()->close_half();
    if (length % 3 == 2) clients.back()->reset();
  }
  for (size_t i = 1; i < clients.size(); ++i) EXPECT_TRUE(i % 3 == 2 || clients[i]->ends()) << i;
  clients.clear();
  expect_served();
}

TEST_F(ServerClientsTest, BadJsonGetsAnErrorThatSaysWhatIsWrong) {
  start();
  const std::string zero(1, '\0');
  const std::vector<std::string> bodies = {"nothing",
                                           "{}",
                                           "[]",
                                           "null",
                                           R"({"prompt": 1e999})",
                                           R"({"prompt": NaN})",
                                           R"({"prompt": "a"}{)",
                                           R"({"prompt": "\ud800"})",
                                           "{\"prompt\": \"\xff\xfe\"}",
                                           "{\"prompt\": \"\xe2\x28\xa1\"}",
                                           "{\"prompt\": \"a" + zero + "b\"}",
                                           "\xef\xbb\xbf{",
                                           R"({"prompt": "a", "max_tokens": 99999999999999999999})",
                                           R"({"prompt": "a", "max_tokens": 1.5})",
                                           R"({"prompt": "a", "n": -9223372036854775808})",
                                           R"({"prompt": [1, "a"]})",
                                           R"({"prompt": [99999]})",
                                           R"({"prompt": [-1]})",
                                           R"({"prompt": []})",
                                           R"({"prompt": "a", "logit_bias": {"x": 1}})",
                                           R"({"prompt": "a", "stop": [[]]})",
                                           R"({"prompt": "a", "temperature": "hot"})",
                                           R"({"prompt": "a", "stream": 1})",
                                           "{\"prompt\": " + std::string(100000, '[') + std::string(100000, ']') + "}",
                                           std::string(200000, '{'),
                                           "{\"a\": " + std::string(100000, '[')};
  for (const std::string& body : bodies) {
    const HttpAnswer answer = HttpClient(server->port()).post("/v1/completions", body);
    EXPECT_EQ(answer.status, 400) << body.substr(0, 60);
    EXPECT_FALSE(parse_json(answer.body, "answer").at("error").at("message").as_string().empty());
  }
  expect_served();
}

TEST_F(ServerClientsTest, AZeroCharacterIsACharacter) {
  start();
  const Json choice =
      post("/v1/completions", R"({"prompt": "a\u0000b", "max_tokens": 0, "echo": true, "return_token_ids": true})")
          .at("choices")
          .as_array()[0];
  EXPECT_EQ(choice.at("prompt_token_ids").dump(), "[97, 0, 98]");
  EXPECT_EQ(choice.at("text").as_string(), std::string("a\0b", 3));
  expect_served();
}

// Occasional bytes do not extend the timeout of a request.
TEST_F(ServerClientsTest, SlowWritersAreDropped) {
  start({.http = {.max_connections = 210, .request_timeout = 1, .body_timeout = 1}});
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 200; ++i) slow.push_back(std::make_unique<HttpClient>(server->port()));
  const std::string info =
                        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                        "application/json\r\nContent-Length: 1000\r\n",
                    body = info + "\r\n{\"prompt\": \"";
  const auto began = std::chrono::steady_clock::now();
  size_t left = slow.size();
  for (size_t at = 0; left > 0; ++at) {
    ASSERT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20)) << left << " hold on";
    left = 0;
    for (size_t i = 0; i < slow.size(); ++i) {
      const std::string& text = i % 2 == 0 ? info : body;
      if (slow[i]->send(std::string(1, at < text.size() ? text[at] : 'x'))) ++left;
    }
    EXPECT_EQ(HttpClient(server->port()).get("/health").status, 200);  // other clients are served at the same time
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  expect_served();
}

TEST_F(ServerClientsTest, AClientThatStopsReadingIsDropped) {
  start({.http = {.max_unsent_bytes = 65536}}, {.max_sequences = 4});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server->port(), 4096));
    clients.back()->send(long_request(R"(, "n": 8)"));
  }
  EXPECT_TRUE(soon([&] {
    return metric("hone_jobs_cancelled_total") == 8;
  }));  // the responses of the cancelled ones exceed the buffers
  clients.clear();
  expect_served();
}

TEST_F(ServerClientsTest, ASlowReaderGetsTheCompleteResponse) {
  start();
  HttpClient client(server->port(), 4096);
  client.send(long_request());
  std::string all;
  for (std::string piece; !(piece = client.read(3000)).empty();) {
    all += piece;
    if (all.ends_with("0\r\n\r\n")) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_NE(all.find("data: [DONE]"), std::string::npos);
  client.close();
  expect_served();
}

TEST_F(ServerClientsTest, AHalfClosedClientCountsAsDisconnected) {
  start({}, {.max_sequences = 1});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server->port()));
    clients.back()->send(long_request(R"(, "n": 20)"));
  }
  ASSERT_TRUE(soon([&] { return metric("hone_replies") == 400; }));
  for (const auto& client : clients) client->close_half();
  EXPECT_TRUE(soon([&] { return metric("hone_jobs_cancelled_total") == 20; }));
  clients.clear();
  expect_served();
}

TEST_F(ServerClientsTest, ManyVanishedClientsLeaveNothing) {
  start({}, {.kv_cache_tokens = 4096, .max_sequences = 8});
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 100; ++i) {
      clients.push_back(std::make_unique<HttpClient>(server->port()));
      clients.back()->send(long_request());
    }
    ASSERT_TRUE(clients[0]->read_until("data: "));
    for (const auto& client : clients) client->reset();
    EXPECT_TRUE(all_is_free());
  }
  expect_served();
}

}  // namespace
}  // namespace hone
