// HttpChannel: kept connections, timeouts, aborts and TLS.
#include "core/net/http_channel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "core/base/check.h"
#include "core/net/http_server.h"
#include "tests/support/http_server.h"
#include "tests/support/support.h"
#include "tests/support/tcp_proxy.h"

namespace hone {
namespace {

using test::http_response;
using test::ReceivedRequest;
using test::soon;
using test::TcpProxy;

// Echoes a body; /half sends half of a response.
struct EchoApp : HttpApp {
  void handle(std::shared_ptr<HttpTransaction> transaction) override {
    ++handled;
    if (transaction->info().path == "/half")
      transaction->begin({.body = "half"});
    else
      transaction->respond(
          {.body = transaction->body(),
           .headers = {{"X-Version", "7"}, {"X-Who", std::string(transaction->info().header("x-who"))}}});
  }
  HttpServerResponse error(int status, const std::string& message) override {
    return {.status = status, .body = message};
  }
  std::atomic<int> handled{0};
};

struct Echo {
  explicit Echo(HttpServerConfig config = {})
      : server((config.port = 0, config), app), proxy((server.start(), server.port())) {}
  std::string url() const { return concat("http://127.0.0.1:", proxy.port()); }
  EchoApp app;
  HttpServer server;
  TcpProxy proxy;
};

std::string error_of(HttpChannel& channel, const std::string& target = "/echo",
                     const HttpRequest& request = {.body = "x", .timeout = 5}) {
  try {
    channel.post(target, request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(HttpChannel, PostsShareAConnection) {
  Echo echo;
  HttpChannel channel(parse_url(echo.url() + "/what/is/here/does/not/count"));
  EXPECT_EQ(echo.proxy.connections(), 0);
  for (int i = 0; i < 5; ++i) {
    const std::string body = "hello" + std::to_string(i);
    const HttpResponse answer = channel.post("/echo", {.body = body, .headers = {{"X-Who", "me"}}});
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, body);
    EXPECT_EQ(answer.header("x-version"), "7");
    EXPECT_EQ(answer.header("x-who"), "me");
    EXPECT_EQ(answer.header("content-type"), "application/json");
    EXPECT_EQ(answer.header("x-none"), "");
  }
  EXPECT_EQ(echo.proxy.connections(), 1);
}

TEST(HttpChannel, MegabytesGoBothWays) {
  Echo echo;
  HttpChannel channel(parse_url(echo.url()));
  std::string body(4 << 20, '\0');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 2654435761u >> 24);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(channel.post("/echo", {.body = body, .content_type = "application/octet-stream"}).body == body);
  EXPECT_EQ(channel.post("/echo", {}).body, "");
  EXPECT_EQ(echo.proxy.connections(), 1);
  EXPECT_NE(error_of(channel, "/echo", {.body = body, .max_body = body.size() - 1}), "");
}

TEST(HttpChannel, AConnectionThatTheServerClosedIsMadeAgain) {
  Echo echo({.idle_timeout = 0.1});
  HttpChannel channel(parse_url(echo.url()));
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(channel.post("/echo", {.body = "x"}).body, "x");
    EXPECT_TRUE(soon([&] { return echo.server.connections() == 0; }));
    EXPECT_EQ(echo.proxy.connections(), i);
  }
  EXPECT_EQ(channel.post("/echo", {.body = std::string(4 << 20, 'x')}).body.size(), 4u << 20);
}

TEST(HttpChannel, ARestartedServerIsFoundAgain) {
  Echo echo;
  HttpChannel channel(parse_url(echo.url()));
  EXPECT_EQ(error_of(channel), "");
  echo.proxy.set(TcpProxy::Mode::refuse);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(error_of(channel).starts_with(echo.url() + "/echo: "));
  echo.proxy.set(TcpProxy::Mode::pass);
  EXPECT_EQ(error_of(channel), "");
}

TEST(HttpChannel, ABrokenConnectionIsKnownWithoutAPost) {
  Echo echo;
  HttpChannel channel(parse_url(echo.url()));
  EXPECT_FALSE(channel.connected()) << "there was none";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_of(channel), "");
    EXPECT_TRUE(channel.connected());
    echo.proxy.set(TcpProxy::Mode::refuse);
    EXPECT_TRUE(soon([&] { return !channel.connected(); }));
    EXPECT_NE(error_of(channel), "");
    EXPECT_FALSE(channel.connected());
    echo.proxy.set(TcpProxy::Mode::pass);
  }
  test::HttpServer closing([&](const ReceivedRequest&) { return http_response("bye", 200, "Connection: close\r\n"); });
  HttpChannel other(parse_url(closing.url()));
  EXPECT_EQ(error_of(other), "");
  EXPECT_FALSE(other.connected()) << "it was not to be kept";
}

TEST(HttpChannel, ACleanlyClosedConnectionIsNotConnected) {
  Echo echo({.idle_timeout = 0.5});
  HttpChannel channel(parse_url(concat("http://127.0.0.1:", echo.server.port())));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(error_of(channel), "");
    EXPECT_TRUE(channel.connected());
    EXPECT_TRUE(soon([&] { return !channel.connected(); }));
  }
}

TEST(HttpChannel, ASilentServerTimesOutWithoutARetry) {
  Echo echo;
  HttpChannel channel(parse_url(echo.url()));
  EXPECT_EQ(error_of(channel), "");
  echo.proxy.set(TcpProxy::Mode::stall);
  for (int i = 0; i < 2; ++i)  // on a kept connection, and on a new one
    EXPECT_LT(seconds_of([&] {
                EXPECT_EQ(error_of(channel, "/echo", {.body = "x", .timeout = 0.2}),
                          echo.url() + "/echo: no response within 0.2 seconds");
              }),
              5);
  EXPECT_LE(echo.proxy.connections(), 2);
  echo.proxy.set(TcpProxy::Mode::pass);
  EXPECT_EQ(error_of(channel), "");
}

TEST(HttpChannel, HalfAResponseIsAnErrorWithoutARetry) {
  Echo echo;
  HttpChannel channel(parse_url(echo.url()));
  EXPECT_EQ(error_of(channel), "");
  std::thread cut([&] {
    EXPECT_TRUE(soon([&] { return echo.app.handled == 2; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // half of the response has arrived
    echo.proxy.set(TcpProxy::Mode::refuse);
  });
  EXPECT_NE(error_of(channel, "/half", {.body = "x", .timeout = 20}), "");
  cut.join();
  EXPECT_EQ(echo.proxy.connections(), 1);
  EXPECT_EQ(echo.app.handled, 2);
}

TEST(HttpChannel, AnotherThreadAbortsAPostAtOnce) {
  for (const bool kept : {false, true}) {
    Echo echo;
    HttpChannel channel(parse_url(echo.url()));
    if (kept) {
      EXPECT_EQ(error_of(channel), "");
    }
    echo.proxy.set(TcpProxy::Mode::stall);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      channel.abort();
    });
    EXPECT_LT(seconds_of([&] {
                EXPECT_NE(error_of(channel, "/echo", {.body = "x", .timeout = 60}).find("aborted"), std::string::npos);
              }),
              20);
    other.join();
    echo.proxy.set(TcpProxy::Mode::pass);
    EXPECT_NE(error_of(channel).find("aborted"), std::string::npos);  // every later post fails too
  }
}

TEST(HttpChannel, AnAbortAtAnyMomentEndsAllPosts) {
  Echo echo;
  for (int i = 0; i < 50; ++i) {
    HttpChannel channel(parse_url(echo.url()));
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
      channel.abort();
    });
    std::string error;
    while (error.empty()) error = error_of(channel);
    EXPECT_NE(error.find("aborted"), std::string::npos) << error;
    other.join();
  }
}

TEST(HttpChannel, AnInvalidResponseIsAnErrorEachTime) {
  for (const char* wrong :
       {"", "garbage\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    test::HttpServer server([&](const ReceivedRequest&) { return wrong; });
    HttpChannel channel(parse_url(server.url()));
    for (int i = 1; i <= 2; ++i) {
      EXPECT_NE(error_of(channel), "") << wrong;
      EXPECT_EQ(server.connections(), i) << wrong;
    }
  }
}

TEST(HttpChannel, BytesAfterAResponseAreNotTheNextResponse) {
  int count = 0;
  test::HttpServer server(
      [&](const ReceivedRequest&) { return http_response(std::to_string(++count)) + http_response("old"); });
  HttpChannel channel(parse_url(server.url()));
  for (const char* expected : {"1", "2", "3"}) EXPECT_EQ(channel.post("/", {.body = "x"}).body, expected);
}

// The other server closes the connection after each response: each further post notices it and connects again.
TEST(HttpChannel, TlsReconnectsAndDetectsEveryFlippedBit) {
  test::HttpServer server([](const ReceivedRequest& request) { return http_response(request.body + "!"); },
                          "localhost");
  TcpProxy proxy(std::stoi(parse_url(server.url()).port));
  const Url url = parse_url(concat("https://localhost:", proxy.port()));
  ::unsetenv("SSL_CERT_FILE");
  HttpChannel stranger(url);
  EXPECT_NE(error_of(stranger).find("certificate verify failed"), std::string::npos);
  ::setenv("SSL_CERT_FILE", server.certificate_file().c_str(), 1);
  HttpChannel channel(url);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(channel.post("/", {.body = "secret"}).body, "secret!");
  proxy.set(TcpProxy::Mode::garble);
  EXPECT_NE(error_of(channel), "");
  proxy.set(TcpProxy::Mode::pass);
  EXPECT_EQ(error_of(channel), "");
  ::unsetenv("SSL_CERT_FILE");
}

}  // namespace
}  // namespace hone
