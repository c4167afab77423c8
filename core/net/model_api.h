#pragma once
// ModelApi: requests to an OpenAI-compatible server, of evaluations and judges. A request that fails in a way that may
// pass is repeated. The API key comes from an environment variable and is in no message.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/config/model_api_config.h"
#include "core/io/json.h"
#include "core/net/http_client.h"

namespace hone {

class HttpChannel;

// The server refuses every request: the key, the model or the path is wrong.
class ApiRefusal : public Error {
 public:
  using Error::Error;
};

struct ApiUsage {
  int64_t requests = 0, retries = 0, prompt_tokens = 0, completion_tokens = 0;
};

// The text of a choice; an absent content (a model that only thought) is "".
std::string choice_text(const Json& choice, bool chat);
std::string choice_finish_reason(const Json& choice);
// The first of a response's `choices`. Throws an Error if there is none.
const Json& first_choice(const Json& response);
// A count of a response's `usage`; 0 if there is none.
int64_t usage_count(const Json& response, const char* name);

// Any thread may call all functions. Idle connections are kept.
class ModelApi {
 public:
  // Reads the API key. Throws an Error if a setting is wrong.
  explicit ModelApi(ModelApiConfig config);
  ~ModelApi();

  // Posts `body` to a path below base_url ("/chat/completions") until it succeeds. read(response) takes what it needs
  // and throws an Error if that is not there, which counts as a broken response. Throws ApiRefusal, or an Error that
  // says why the request failed for good.
  void post(const std::string& path, const Json& body, const std::function<void(const Json& response)>& read);

  const ModelApiConfig& config() const { return config_; }
  // Of all requests so far.
  ApiUsage usage() const;

 private:
  Json post_once(const std::string& path, const std::string& body);
  void wait_for_turn();
  void wait_to_retry(int64_t attempt, std::optional<double> asked);
  void add_usage(const Json& response);
  std::unique_ptr<HttpChannel> take_channel();
  std::string without_key(std::string text) const;

  ModelApiConfig config_;
  Url url_;
  std::string api_key_;
  mutable std::mutex mutex_;  // guards the members below
  ApiUsage usage_;
  std::vector<std::unique_ptr<HttpChannel>> idle_;
  std::chrono::steady_clock::time_point next_turn_{};
};

}  // namespace hone
