// parse_url() and http_post().
#include "core/net/http_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/base/check.h"
#include "tests/support/http_server.h"

namespace hone::test {
namespace {

HttpResponse post(const std::string& url, const HttpRequest& request) { return http_post(parse_url(url), request); }

std::string error_of(const std::string& url, const HttpRequest& request = {.body = "x", .timeout = 5}) {
  try {
    post(url, request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string url_error(const std::string& text) {
  try {
    parse_url(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ParseUrl, SplitsHostPortAndTarget) {
  const auto expect = [](const char* text, bool tls, const char* host, const char* port, const char* target) {
    const Url url = parse_url(text);
    EXPECT_EQ(url.tls, tls) << text;
    EXPECT_EQ(url.host, host) << text;
    EXPECT_EQ(url.port, port) << text;
    EXPECT_EQ(url.target, target) << text;
  };
  expect("http://a", false, "a", "80", "/");
  expect("https://a.example/b/c?d=1#e", true, "a.example", "443", "/b/c?d=1");
  expect("http://a:5000?d", false, "a", "5000", "/?d");
  expect("http://[::1]:8080/x", false, "::1", "8080", "/x");
  expect("http://[::1]/", false, "::1", "80", "/");
  for (const char* wrong :
       {"", "a", "ftp://a", "http://", "http:///x", "http://a:/", "http://a:70000", "http://a:b", "http://u:p@a/",
        "http://a b", "http://a/\r\nX: y", "http://[::1", "http://a:99999999999999999999"})
    EXPECT_NE(url_error(wrong), "") << wrong;
}

TEST(HttpPost, SendsTheBodyAndReturnsTheResponse) {
  ReceivedRequest got;
  HttpServer server([&](const ReceivedRequest& request) {
    got = request;
    return http_response("{\"a\": 1}", 201);
  });
  const std::string body(300000, 'x');
  const HttpResponse response = post(server.url("127.0.0.1", "/a?b"), {.body = body, .headers = {{"X-Who", "me"}}});
  EXPECT_EQ(response.status, 201);
  EXPECT_EQ(response.body, "{\"a\": 1}");
  EXPECT_EQ(got.body, body);
  EXPECT_TRUE(got.head.starts_with("POST /a?b HTTP/1.1\r\n")) << got.head;
  EXPECT_NE(got.head.find("Content-Type: application/json"), std::string::npos);
  EXPECT_NE(got.head.find("X-Who: me"), std::string::npos);
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpPost, ResponsesWithoutALengthAndInChunksAreRead) {
  HttpServer open([](const ReceivedRequest&) { return "HTTP/1.1 200 OK\r\n\r\nabc"; });
  EXPECT_EQ(post(open.url(), {}).body, "abc");
  HttpServer chunked([](const ReceivedRequest&) {
    return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  });
  EXPECT_EQ(post(chunked.url(), {}).body, "abcde");
}

TEST(HttpPost, ARedirectionIsNotFollowed) {
  HttpServer server([](const ReceivedRequest&) { return http_response("", 302, "Location: http://127.0.0.1:1/\r\n"); });
  const HttpResponse response = post(server.url(), {});
  EXPECT_EQ(response.status, 302);
  EXPECT_EQ(response.header("location"), "http://127.0.0.1:1/");
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpPost, ASlowServerTimesOut) {
  HttpServer server([](const ReceivedRequest&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    return http_response("late");
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(error_of(server.url(), {.body = "x", .timeout = 0.2}).find("no response within 0.2 seconds"),
            std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(650));
}

TEST(HttpPost, ATruncatedResponseIsAnError) {
  HttpServer info([](const ReceivedRequest&) { return "HTTP/1.1 200 OK\r\nContent-Le"; });
  EXPECT_NE(error_of(info.url()), "");
  HttpServer body([](const ReceivedRequest&) { return "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"; });
  EXPECT_NE(error_of(body.url()), "");
  HttpServer nothing([](const ReceivedRequest&) { return ""; });
  EXPECT_NE(error_of(nothing.url()), "");
  HttpServer garbage([](const ReceivedRequest&) { return "\x16\x03\x01 this is no HTTP\r\n\r\n"; });
  EXPECT_NE(error_of(garbage.url()), "");
}

TEST(HttpPost, AHugeResponseIsAnError) {
  HttpServer honest([](const ReceivedRequest&) { return http_response(std::string(200000, 'x')); });
  EXPECT_EQ(post(honest.url(), {.max_body = 200000}).body.size(), 200000u);
  EXPECT_NE(error_of(honest.url(), {.max_body = 199999}), "");
  HttpServer endless([](const ReceivedRequest&) { return "HTTP/1.1 200 OK\r\n\r\n" + std::string(3000000, 'x'); });
  EXPECT_NE(error_of(endless.url(), {.max_body = 100000}), "");
  HttpServer headers(
      [](const ReceivedRequest&) { return "HTTP/1.1 200 OK\r\nX: " + std::string(3000000, 'x') + "\r\n\r\n"; });
  EXPECT_NE(error_of(headers.url()), "");
}

TEST(HttpPost, AMissingServerIsAnErrorThatNamesTheUrl) {
  std::string url;
  {
    url = HttpServer([](const ReceivedRequest&) { return ""; }).url();
  }
  EXPECT_NE(error_of(url).find(url), std::string::npos) << error_of(url);
}

// OpenSSL reads SSL_CERT_FILE each time a context loads the system's roots.
TEST(HttpPost, ACertificateMustBeTrustedAndBeTheHosts) {
  const auto hello = [](const ReceivedRequest&) { return http_response("secret"); };
  HttpServer server(hello, "localhost"), other(hello, "elsewhere.example");
  ::unsetenv("SSL_CERT_FILE");
  EXPECT_NE(error_of(server.url("localhost")).find("certificate verify failed"), std::string::npos)
      << error_of(server.url("localhost"));
  ::setenv("SSL_CERT_FILE", server.certificate_file().c_str(), 1);
  EXPECT_EQ(post(server.url("localhost"), {.body = "x"}).body, "secret");
  EXPECT_NE(error_of(server.url("127.0.0.1")), "");  // the certificate is for localhost only
  ::setenv("SSL_CERT_FILE", other.certificate_file().c_str(), 1);
  EXPECT_NE(error_of(other.url("localhost")), "");
  ::unsetenv("SSL_CERT_FILE");
  HttpServer plain(hello);
  EXPECT_NE(error_of("https" + plain.url("localhost").substr(4), {.body = "x", .timeout = 0.3}),
            "");  // a server without TLS
}

TEST(HttpPost, FromManyThreadsAtOnce) {
  HttpServer server([](const ReceivedRequest& request) { return http_response(request.body + "!"); });
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      const std::string body = std::to_string(i);
      for (int k = 0; k < 5; ++k) right += post(server.url(), {.body = body}).body == body + "!";
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 40);
}

}  // namespace
}  // namespace hone::test
