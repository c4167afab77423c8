// HttpServer: responses, streams, limits, timeouts, draining and TLS.
#include "core/net/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/base/check.h"
#include "core/config/config.h"
#include "core/net/http_channel.h"
#include "tests/support/certificate.h"
#include "tests/support/http_client.h"
#include "tests/support/support.h"

namespace hone {
namespace {

using test::HttpAnswer;
using test::HttpClient;
using test::post_request;
using test::soon;

// Echoes a body; some paths behave differently.
struct TestApp : HttpApp {
  std::optional<HttpServerResponse> reject_early(const HttpRequestInfo& info) override {
    if (info.path == "/refused") return HttpServerResponse{.status = 401, .body = "no"};
    return std::nullopt;
  }
  void handle(std::shared_ptr<HttpTransaction> transaction) override {
    ++handled;
    const std::string& path = transaction->info().path;
    if (path == "/throw") throw Error("broken");
    if (path == "/held") {
      transaction->on_disconnect([this] { ++gone; });
      held = transaction;
      holds = true;
    } else if (path == "/flood") {
      transaction->on_disconnect([this] { ++gone; });
      transaction->begin({.content_type = "text/plain"});
      flooding = std::thread([this, transaction] {
        while (transaction->write(std::string(65536, 'x'))) ++pieces;
      });
    } else if (path == "/pieces" || path == "/broken") {
      transaction->respond({.body = "0", .content_type = "text/plain"}, [this, path](std::string& out) {
        if (path == "/broken" && pieces == 2) throw std::bad_alloc();
        out += std::string(100000, static_cast<char>('0' + ++pieces));
        return pieces < 9;
      });
    } else if (path == "/stream") {
      transaction->begin({.body = "a", .content_type = "text/plain"});
      transaction->write("b");
      transaction->write("c");
      transaction->end();
    } else {
      transaction->respond({.body = transaction->info().method + " " +
                                    std::string(transaction->info().header("x-who")) + transaction->body()});
    }
  }
  HttpServerResponse error(int status, const std::string& message) override {
    return {.status = status, .body = message};
  }

  std::atomic<int> handled{0}, gone{0}, pieces{0};
  std::atomic<bool> holds = false;  // `held` is set
  std::shared_ptr<HttpTransaction> held;
  std::thread flooding;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpServerConfig config) {
    config.port = 0;
    server = std::make_unique<HttpServer>(config, app);
    server->start();
  }
  ~HttpServerTest() override {
    server.reset();
    if (app.flooding.joinable()) app.flooding.join();
  }
  TestApp app;
  std::unique_ptr<HttpServer> server;
};

TEST_F(HttpServerTest, ServesRequestsOneAfterAnotherOnAConnection) {
  start({});
  HttpClient client(server->port());
  for (int i = 0; i < 3; ++i) {
    const HttpAnswer answer = client.post("/echo?x=1", "hello" + std::to_string(i), "X-Who: me\r\n");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "POST mehello" + std::to_string(i));
  }
  EXPECT_EQ(client.get("/echo").body, "GET ");
  EXPECT_EQ(server->connections(), 1);
  client.send(post_request("/echo", "1") + post_request("/echo", "2"));  // the second before the response to the first
  EXPECT_EQ(client.answer().body, "POST 1");
  EXPECT_EQ(client.answer().body, "POST 2");
  client.close();
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
}

TEST_F(HttpServerTest, ATransactionReportsADisconnectAfterItsResponse) {
  start({});
  HttpClient client(server->port());
  client.send(post_request("/held", "1"));
  ASSERT_TRUE(soon([&] { return app.holds.load(); }));
  app.held->respond({.body = "here"});
  EXPECT_EQ(client.answer().body, "here");
  EXPECT_FALSE(app.held->disconnected());
  client.close();
  EXPECT_TRUE(soon([&] { return app.held->disconnected(); }));
}

TEST_F(HttpServerTest, ATransactionReportsADisconnectDuringTheNextOne) {
  start({});
  HttpClient client(server->port());
  client.send(post_request("/held", "1"));
  ASSERT_TRUE(soon([&] { return app.holds.load(); }));
  const std::shared_ptr<HttpTransaction> first = app.held;
  app.holds = false;
  first->respond({.body = "here"});
  EXPECT_EQ(client.answer().body, "here");
  client.send(post_request("/held", "2"));
  ASSERT_TRUE(soon([&] { return app.holds.load(); }));
  EXPECT_FALSE(first->disconnected());
  client.close();
  EXPECT_TRUE(soon([&] { return first->disconnected() && app.held->disconnected(); }));
  EXPECT_EQ(app.gone, 1) << "the first had its answer";
}

TEST_F(HttpServerTest, StreamsInChunksOrToTheEndOfTheConnection) {
  start({});
  HttpClient client(server->port());
  EXPECT_EQ(client.get("/stream").body, "abc");
  EXPECT_EQ(client.get("/stream").headers.at("transfer-encoding"), "chunked");
  HttpClient old(server->port());
  old.send("GET /stream HTTP/1.0\r\n\r\n");
  const HttpAnswer answer = old.answer();
  EXPECT_EQ(answer.body, "abc");
  EXPECT_EQ(answer.headers.count("transfer-encoding"), 0u);
}

TEST_F(HttpServerTest, AResponseInPiecesIsProducedAsItIsSent) {
  start({.max_unsent_bytes = 1000});
  std::string expected = "0";
  for (char digit = '1'; digit <= '9'; ++digit) expected += std::string(100000, digit);
  for (int i = 0; i < 2; ++i) {
    app.pieces = 0;
    const HttpAnswer answer = HttpClient(server->port()).post("/pieces", "");
    EXPECT_EQ(answer.headers.at("transfer-encoding"), "chunked");
    EXPECT_TRUE(answer.body == expected);
  }
  app.pieces = 0;
  HttpClient slow(server->port(), 4096);
  slow.send(post_request("/pieces", ""));
  EXPECT_FALSE(soon([&] { return app.pieces == 9; }, 0.3)) << "nobody has taken the first ones";
  EXPECT_TRUE(slow.answer().body == expected);
}

TEST_F(HttpServerTest, AFailedPieceEndsItsConnectionOnly) {
  start({});
  EXPECT_EQ(HttpClient(server->port()).post("/broken", "").status, 0);
  EXPECT_EQ(HttpClient(server->port()).post("/echo", "x").body, "POST x");
}

TEST_F(HttpServerTest, HeadGetsTheHeadersOnly) {
  start({});
  HttpClient client(server->port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  std::string all;
  while (all.find("GET ") == std::string::npos) {
    const std::string more = client.read();
    ASSERT_FALSE(more.empty()) << all;
    all += more;
  }
  EXPECT_NE(all.find("Content-Length: 5\r\n"), std::string::npos) << all;
  EXPECT_EQ(all.find("HEAD "), std::string::npos) << all;
}

TEST_F(HttpServerTest, TooLongRequestsAreRejected) {
  start({.max_header_bytes = 2048, .max_body_bytes = 1000});
  EXPECT_EQ(HttpClient(server->port()).post("/echo", std::string(1000, 'x')).status, 200);
  const HttpAnswer stated = HttpClient(server->port()).post("/echo", std::string(1001, 'x'));
  EXPECT_EQ(stated.status, 413);
  EXPECT_EQ(stated.body, "the body is longer than 1000 bytes");
  EXPECT_EQ(stated.headers.at("connection"), "close");
  EXPECT_EQ(HttpClient(server->port()).post("/echo", std::string(3000000, 'x')).status,
            413);  // the server reads on for a moment, so that the response arrives
  HttpClient chunked(server->port());
  chunked.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 3; ++i) chunked.send("190\r\n" + std::string(400, 'x') + "\r\n");
  EXPECT_EQ(chunked.answer().status, 413);
  EXPECT_EQ(HttpClient(server->port()).get("/echo", "X-Long: " + std::string(5000, 'x') + "\r\n").status, 431);
  EXPECT_EQ(app.handled, 1);
}

// Without it, bodies within their own bounds could fill the memory together.
TEST_F(HttpServerTest, BodiesOfAllConnectionsHaveACommonBound) {
  constexpr size_t body = 400000;
  start({.max_body_bytes = 1000000, .max_total_body_bytes = 1000000});
  const std::string head = concat("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: ", body, "\r\n\r\n");
  std::vector<std::unique_ptr<HttpClient>> waiting;
  for (int i = 0; i < 10; ++i) {  // a header alone takes nothing
    waiting.push_back(std::make_unique<HttpClient>(server->port()));
    waiting.back()->send(head);
  }
  EXPECT_EQ(HttpClient(server->port()).post("/echo", std::string(body, 'x')).status, 200);
  for (const auto& client : waiting) client->send(std::string(body - 1, 'x'));
  for (const auto& client : waiting) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    client->send("x");
  }
  int served = 0, refused = 0;
  for (const auto& client : waiting) {
    const HttpAnswer answer = client->answer();
    (answer.status == 200 ? served : refused) += 1;
    if (answer.status == 200) continue;
    EXPECT_EQ(answer.status, 503);
    EXPECT_NE(answer.body.find("other requests' bodies"), std::string::npos) << answer.body;
    EXPECT_EQ(answer.headers.at("retry-after"), "1");
  }
  EXPECT_GT(served, 0);
  EXPECT_GE(refused, 5);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(HttpClient(server->port()).post("/echo", std::string(1000000, 'x')).status, 200) << "nothing stays held";
}

TEST_F(HttpServerTest, ShortBodiesAreServedWhileLongOnesFillTheirBound) {
  start({.max_body_bytes = 300000, .max_total_body_bytes = 300000});
  HttpClient waiting(server->port());
  waiting.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + std::string(299999, 'x'));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until it has arrived
  EXPECT_TRUE(soon([&] { return HttpClient(server->port()).post("/echo", std::string(200000, 'x')).status == 503; }));
  EXPECT_EQ(HttpClient(server->port()).post("/echo", std::string(20000, 'x')).status, 200);
  waiting.send("x");
  EXPECT_EQ(waiting.answer().status, 200);
  EXPECT_EQ(HttpClient(server->port()).post("/echo", std::string(200000, 'x')).status, 200);
}

// A slow response does not keep its request's body.
TEST_F(HttpServerTest, ADroppedBodyIsNotCounted) {
  start({.max_body_bytes = 300000, .max_total_body_bytes = 300000});
  HttpClient client(server->port());
  client.send("POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 250000\r\n\r\n" + std::string(250000, 'x'));
  ASSERT_TRUE(soon([&] { return app.holds.load(); }));
  EXPECT_EQ(HttpClient(server->port()).post("/echo", std::string(250000, 'x')).status, 503);
  app.held->drop_body();
  EXPECT_EQ(HttpClient(server->port()).post("/echo", std::string(250000, 'x')).status, 200);
  app.held->respond({.body = "done"});
  EXPECT_EQ(client.answer().body, "done");
}

TEST_F(HttpServerTest, InvalidRequestsAreRejected) {
  start({});
  for (const char* wrong : {"garbage\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                            "POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n",
                            "GET /\r\nHost x\r\n\r\n", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    HttpClient client(server->port());
    client.send(wrong);
    EXPECT_EQ(client.answer().status, 400) << wrong;
    EXPECT_TRUE(client.ends()) << wrong;
  }
  EXPECT_EQ(app.handled, 0);
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
}

TEST_F(HttpServerTest, AnEarlyRejectionNeedsNoBody) {
  start({});
  HttpClient client(server->port());
  client.send("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  EXPECT_EQ(client.answer().status, 401);
  HttpClient whole(server->port());
  EXPECT_EQ(whole.get("/refused").headers.at("connection"), "close");
  EXPECT_TRUE(whole.ends());
  EXPECT_EQ(app.handled, 0);
}

TEST_F(HttpServerTest, Expect100Continue) {
  start({});
  HttpClient client(server->port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_TRUE(client.read().starts_with("HTTP/1.1 100 "));
  client.send("hi");
  EXPECT_EQ(client.answer().body, "POST hi");
}

TEST_F(HttpServerTest, AnExceptionIsAnErrorResponse) {
  start({});
  HttpClient client(server->port());
  const HttpAnswer answer = client.get("/throw");
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.body, "broken");
  EXPECT_EQ(client.get("/echo").status, 200);
}

TEST_F(HttpServerTest, ADisconnectIsNoticedDuringAResponse) {
  start({});
  HttpClient client(server->port());
  client.send(post_request("/held", ""));
  ASSERT_TRUE(soon([&] { return app.handled == 1; }));
  EXPECT_EQ(app.gone, 0);
  client.close();
  EXPECT_TRUE(soon([&] { return app.gone == 1; }));
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
  EXPECT_FALSE(app.held->write("too late"));
  int late = 0;
  app.held->on_disconnect([&] { ++late; });
  EXPECT_EQ(late, 1);
}

// The client shuts down its side while the response is sent.
TEST_F(HttpServerTest, AHalfClosedClientIsClosedAfterItsResponse) {
  start({.max_body_bytes = int64_t{32} << 20});
  HttpClient client(server->port(), 4096);
  const std::string body(size_t{16} << 20, 'x');
  client.send(post_request("/", body));
  client.close_half();
  EXPECT_EQ(client.answer().body.size(), body.size() + 5) << "POST and what was posted";
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }, 5));
}

TEST_F(HttpServerTest, ATooSlowReaderIsDropped) {
  start({.max_unsent_bytes = 1 << 20});
  HttpClient client(server->port(), 4096);
  client.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(soon([&] { return app.gone == 1; }));  // the app writes without pause; the client does not read
  EXPECT_LT(app.pieces, 1000);
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
}

TEST_F(HttpServerTest, AClientThatReadsNothingIsDropped) {
  start({.max_unsent_bytes = int64_t{1} << 40, .write_timeout = 0.3});
  HttpClient client(server->port(), 4096);
  client.send(post_request("/held", ""));
  ASSERT_TRUE(soon([&] { return app.holds.load(); }));
  app.held->begin({.body = std::string(50 << 20, 'x'), .content_type = "text/plain"});
  EXPECT_TRUE(soon([&] { return app.gone == 1; }));
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
}

TEST_F(HttpServerTest, HalfARequestAndSilenceTimeOut) {
  start({.request_timeout = 0.3, .body_timeout = 0.3, .idle_timeout = 0.6});
  HttpClient half(server->port()), body(server->port()), silent(server->port());
  half.send("POST /echo HT");
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(half.ends());
  EXPECT_TRUE(body.ends());
  EXPECT_TRUE(silent.ends());
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
  EXPECT_EQ(app.handled, 0);
}

TEST_F(HttpServerTest, ABodyMayTakeLongerThanAHeader) {
  start({.request_timeout = 0.3, .body_timeout = 20});
  HttpClient half(server->port()), body(server->port());
  half.send("POST /echo HT");
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nh");
  EXPECT_TRUE(half.ends());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  body.send("i");
  EXPECT_EQ(body.answer().body, "POST hi");
}

TEST_F(HttpServerTest, DrainingSendsPendingResponses) {
  start({});
  HttpClient idle(server->port()), busy(server->port());
  EXPECT_EQ(idle.get("/echo").status, 200);
  busy.send(post_request("/held", ""));
  ASSERT_TRUE(soon([&] { return app.holds.load(); }));
  std::thread later([&] {
    EXPECT_TRUE(idle.ends());  // closed at once
    app.held->respond({.body = "at last"});
  });
  EXPECT_TRUE(server->drain(20));
  later.join();
  const HttpAnswer answer = busy.answer();
  EXPECT_EQ(answer.body, "at last");
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_THROW(HttpClient(server->port()), std::runtime_error);
}

TEST_F(HttpServerTest, DrainingHasATimeout) {
  start({});
  HttpClient client(server->port());
  client.send(post_request("/held", ""));
  ASSERT_TRUE(soon([&] { return app.handled == 1; }));
  EXPECT_FALSE(server->drain(0.1));
}

TEST_F(HttpServerTest, ConnectionsBeyondTheMaximumWait) {
  start({.max_connections = 2});
  auto first = std::make_unique<HttpClient>(server->port());
  HttpClient second(server->port()), third(server->port());
  EXPECT_EQ(first->get("/echo").status, 200);
  EXPECT_EQ(second.get("/echo").status, 200);
  third.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(third.read(10, 0.2), "");
  first.reset();
  EXPECT_EQ(third.answer().status, 200);
}

TEST_F(HttpServerTest, AThousandConnections) {
  start({});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 1000; ++i) clients.push_back(std::make_unique<HttpClient>(server->port()));
  for (int i = 0; i < 1000; ++i) clients[i]->send(post_request("/echo", std::to_string(i)));
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(clients[i]->answer().body, "POST " + std::to_string(i));
  EXPECT_EQ(server->connections(), 1000);
}

TEST_F(HttpServerTest, SpeaksTlsWithItsCertificate) {
  const test::TemporaryFolder folder;
  const auto [certificate, key] = test::make_certificate(folder.path(), "DNS:localhost");
  if (certificate.empty()) GTEST_SKIP() << "no openssl program to make a certificate with";
  start({.tls_cert = certificate, .tls_key = key, .request_timeout = 1});
  ::setenv("SSL_CERT_FILE", certificate.c_str(), 1);
  {
    HttpChannel channel(parse_url(concat("https://localhost:", server->port())));
    EXPECT_EQ(channel.post("/echo", {.body = "secret"}).body, "POST secret");
    EXPECT_EQ(channel.post("/stream", {}).body, "abc");
    EXPECT_EQ(server->connections(), 1);
  }
  ::unsetenv("SSL_CERT_FILE");
  HttpClient plain(server->port());
  plain.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(plain.answer().status, 0);
  HttpClient silent(server->port());
  EXPECT_TRUE(silent.ends());  // no handshake in time
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
  EXPECT_EQ(app.handled, 2);
}

TEST_F(HttpServerTest, InvalidSettingsAndAddresses) {
  start({});
  const HttpServerConfig taken{.port = server->port()};
  EXPECT_THROW(HttpServer(taken, app), Error);
  EXPECT_THROW(HttpServer({.host = "nowhere.example"}, app), Error);
  EXPECT_THROW(HttpServer({.port = 0, .tls_cert = "/nonexistent", .tls_key = "/nonexistent"}, app), Error);
  const auto error_of = [](HttpServerConfig config) {
    try {
      check_settings([&](Fields& f) { config.fields(f); });
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(error_of({}), "");
  EXPECT_EQ(error_of({.port = 70000}), "port must be in [0, 65535]");
  EXPECT_EQ(error_of({.tls_cert = "a"}), "tls_cert and tls_key must be set together");
  EXPECT_EQ(error_of({.idle_timeout = 0}), "idle_timeout must be in (0, 1e6] seconds");
}

}  // namespace
}  // namespace hone
