// ServeGate rejects what a browser may send for a foreign page; programs, the server's own page, and origins and hosts
// of the options are served.
#include <fstream>

#include "tests/rollout/remote/worker_fixture.h"
#include "tests/serve/server_fixture.h"

namespace hone::test {
namespace {

class ServeGateTest : public ServerFixture {
 protected:
  HttpAnswer ask(const std::string& headers, const std::string& host = "localhost",
                 const std::string& method = "POST") const {
    HttpClient client(server->port());
    const std::string body = R"({"prompt": "a", "max_tokens": 2})";
    client.send(concat(method, " /v1/completions HTTP/1.1\r\nHost: ", host, "\r\n", headers,
                       "Content-Length: ", body.size(), "\r\n\r\n", body));
    return client.answer();
  }
  static constexpr const char* json = "Content-Type: application/json\r\n";
};

TEST_F(ServeGateTest, ABodyMustSayThatItIsJson) {
  start();
  for (const char* type :
       {"", "Content-Type: text/plain\r\n", "Content-Type: text/plain;charset=UTF-8\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n", "Content-Type: multipart/form-data; boundary=x\r\n",
        "Content-Type: application/jsonp\r\n", "Content-Type: text/plain; application/json\r\n", "Content-Type:\r\n"}) {
    const HttpAnswer answer = ask(type);
    EXPECT_EQ(answer.status, 415) << type << answer.body;
    EXPECT_EQ(parse_json(answer.body, "").at("error").at("code").as_string(), "unsupported_media_type");
  }
  for (const char* type :
       {json, "Content-Type: application/json; charset=utf-8\r\n", "content-type:Application/JSON ;x=y\r\n"})
    EXPECT_EQ(ask(type).status, 200) << type;
}

TEST_F(ServeGateTest, AForeignHostNameIsRejected) {
  start();
  for (const char* host :
       {"x", "evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1evil",
        "127.1", "128.0.0.1", "[::2]:80", "127.0.0.1:80@evil.example", "localhost@evil.example", "0.0.0.0", "a::1"}) {
    const HttpAnswer answer = ask(json, host);
    EXPECT_EQ(answer.status, 403) << host << answer.body;
    EXPECT_NE(answer.body.find("--allowed-hosts"), std::string::npos) << answer.body;
  }
  for (const char* host :
       {"localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:80", "127.9.8.7:1", "[::1]", "[::1]:8000"})
    EXPECT_EQ(ask(json, host).status, 200) << host;
  for (const char* path : {"/", "/health", "/metrics", "/v1/models"}) {
    HttpClient foreign(server->port()), own(server->port());
    foreign.send(concat("GET ", path, " HTTP/1.1\r\nHost: evil.example\r\n\r\n"));
    EXPECT_EQ(foreign.answer().status, 403) << path;
    EXPECT_EQ(own.get(path).status, 200) << path;
  }
}

TEST_F(ServeGateTest, APageOfAnotherOriginIsRejected) {
  start();
  const std::string here = concat("localhost:", server->port());
  for (const std::string& origin :
       {std::string("http://evil.example"), std::string("null"), concat("http://localhost:", server->port() + 1),
        std::string("http://localhost"), std::string("https://"),
        concat("http://localhost.evil.example:", server->port()), std::string("localhost")}) {
    const HttpAnswer answer = ask(concat(json, "Origin: ", origin, "\r\n"), here);
    EXPECT_EQ(answer.status, 403) << origin << answer.body;
    EXPECT_FALSE(answer.headers.contains("access-control-allow-origin"));
    EXPECT_EQ(ask(concat("Origin: ", origin, "\r\nAccess-Control-Request-Method: POST\r\n"), here, "OPTIONS").status,
              403);
  }
  EXPECT_EQ(ask(concat(json, "Origin: http://", here, "\r\n"), here).status, 200) << "the page at /";
  EXPECT_EQ(ask(concat(json, "Origin: http://LOCALHOST:", server->port(), "\r\n"), here).status, 200);
}

TEST_F(ServeGateTest, OptionsAllowOriginsAndHosts) {
  ServerConfig config;
  config.access = {.allowed_origins = {"https://App.example"}, .allowed_hosts = {"box.example"}};
  start(config);
  const std::string origin = "Origin: https://app.example\r\n";
  const HttpAnswer answer = ask(json + origin, "box.example:8000");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(ask(origin, "localhost").headers.at("access-control-allow-origin"), "https://app.example")
      << "of an error, too: the page reads it";
  const HttpAnswer question = ask(origin + "Access-Control-Request-Method: POST\r\n", "box.example", "OPTIONS");
  EXPECT_EQ(question.status, 204);
  EXPECT_EQ(question.headers.at("access-control-allow-methods"), "POST");
  EXPECT_NE(question.headers.at("access-control-allow-headers").find("content-type"), std::string::npos);
  EXPECT_EQ(ask(concat(json, "Origin: https://other.example\r\n")).status, 403);
  EXPECT_EQ(ask(json, "other.example").status, 403);
}

TEST_F(ServeGateTest, WithAKeyAnyHostNameIsAccepted) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "keys") << "sesame\n";
  ServerConfig config;
  config.api_key_file = (folder.path() / "keys").string();
  start(config);
  EXPECT_EQ(ask(concat(json, "Authorization: Bearer sesame\r\n"), "box.example").status, 200);
  EXPECT_EQ(ask(json, "box.example").status, 401);
}

TEST_F(WorkerFixture, AWorkerAcceptsItsOwnHostNamesAndNoPage) {
  start();
  const std::string body = setup().to_json().dump();
  const auto join = [&](const std::string& name, const std::string& headers) {
    HttpClient client(workers[0]->port());
    client.send(concat("POST /v1/worker/join HTTP/1.1\r\nHost: ", name, "\r\n", digest_header, ": ",
                       base64(sha256(body)), "\r\n", headers, "Content-Length: ", body.size(), "\r\n\r\n", body));
    return client.answer().status;
  };
  const std::string json = "Content-Type: application/json\r\n";
  EXPECT_EQ(join("evil.example", json), 403);
  EXPECT_EQ(join("localhost", json + "Origin: http://evil.example\r\n"), 403);
  EXPECT_EQ(join("localhost", "Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(join("localhost", json), 200);
}

}  // namespace
}  // namespace hone::test
