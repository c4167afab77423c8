#pragma once
// A server of the tiny model on a real socket.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/serve/tiny_server.h"
#include "tests/support/http_client.h"
#include "tests/support/support.h"

namespace hone::test {

class ServerFixture : public ::testing::Test {
 protected:
  void start(ServerConfig config = {}, const EngineConfig& engine_config = {}) {
    config.http.port = 0;
    engine = std::make_unique<Engine>(model.context, *model.model, &model.tokenizer, engine_config);
    server = std::make_unique<Server>(*engine, model.served(), config);
  }
  Json post(const std::string& path, const std::string& body, int status = 200) const {
    const HttpAnswer answer = HttpClient(server->port()).post(path, body);
    EXPECT_EQ(answer.status, status) << answer.body;
    return parse_json(answer.body, "answer");
  }
  // The events of a stream without the last one, which must be [DONE].
  std::vector<Json> events(const std::string& path, const std::string& body) const {
    const HttpAnswer answer = HttpClient(server->port()).post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
    EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
    std::vector<Json> out;
    for (size_t at = 0; at < answer.body.size(); at = answer.body.find("\n\n", at) + 2) {
      const std::string line = answer.body.substr(at, answer.body.find("\n\n", at) - at);
      EXPECT_TRUE(line.starts_with("data: ")) << line;
      if (line != "data: [DONE]") out.push_back(parse_json(line.substr(6), "event"));
    }
    return out;
  }
  double metric(const std::string& name) const {
    const std::string text = "\n" + HttpClient(server->port()).get("/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name << " is not in " << text;
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }
  // Waits until all resources of clients are freed: completions, KV blocks, and all connections but the caller's.
  bool all_is_free() const {
    HttpClient asking(server->port());
    return soon([&] {
      const std::string text = asking.get("/metrics").body;
      return std::ranges::all_of(
          std::array{"\nhone_replies 0\n", "\nhone_kv_cache_held_tokens 0\n", "\nhone_connections 1\n"},
          [&](const char* fact) { return text.find(fact) != std::string::npos; });
    });
  }
  std::vector<CompletionOutput> replies_to(GenerationRequest request) {
    return Engine(model.context, *model.model, &model.tokenizer, {}).generate({std::move(request)})[0];
  }

  TinyServedModel model;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Server> server;
};

}  // namespace hone::test
