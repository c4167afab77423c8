#pragma once
// Server: an engine as OpenAI's clients know it. docs/reference/http-api.md says what it answers.
#include <filesystem>
#include <memory>
#include <optional>

#include "core/net/bearer_keys.h"
#include "core/net/http_error.h"
#include "core/net/http_server.h"
#include "serve/openai_request.h"

namespace hone {

struct ServerConfig {
  HttpServerConfig http;
  std::string api_key_file = {};  // none = everybody may ask
  ServeAccess access = {};
  int64_t max_pending_completions = 1024;
  int64_t max_answer_bytes = int64_t{256} << 20;  // that one request's answer may have
  int64_t max_pending_bytes = int64_t{1} << 30;   // that answers under way may have together
  void fields(Fields& f);
};

class Server {
 public:
  // Serves from now on. What the model points to outlives it; the engine is driven by a thread of its own from here.
  Server(Engine& engine, ServedModel model, const ServerConfig& config);
  ~Server();
  int64_t port() const;
  // Takes no more requests and lets those under way be answered, for so many seconds at most; true if all were. May be
  // called again to wait on. The destructor drops the rest.
  bool drain(double seconds);
  // Why the engine stopped, "" while it runs.
  std::string failure() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
