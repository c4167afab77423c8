#pragma once
// Endpoint: a model behind an OpenAI-compatible HTTP server, for `hone eval --base-url` and `hone collect`. Requests
// run side by side and are repeated after failures that may pass. A request that fails for good has a problem in its
// reply; it never counts as a wrong completion.
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/net/model_api.h"
#include "data/sample.h"
#include "rollout/engine.h"

namespace hone {

struct EndpointConfig : ModelApiConfig {
  int64_t concurrency = 8;                   // requests at the same time
  double input_price = 0, output_price = 0;  // per million tokens, in any currency
  void fields(Fields& f);
};

// How completions are sampled. Completion i of a task has the seed sampling.seed + i.
struct EndpointSampling {
  int64_t num_completions = 1;
  SamplingParams sampling = {};
  // Variables of the server's chat template, sent if there are any (vLLM); those of a task's row are added.
  Json chat_template_kwargs = JsonObject{};
};

// The completions of a task, or why there are none.
struct EndpointReply {
  std::vector<Completion> completions;
  int64_t completion_tokens = 0;
  std::string problem = {};
};

// One completion of a task. A message with reasoning or tool calls is in Completion::messages, too.
struct EndpointCompletion {
  Completion completion;
  int64_t num_tokens = 0;  // as the server counts them
};

// A text whose likelihood is asked for, after its context. `where`: its row, for messages.
struct ScoredText {
  std::string where, context, continuation;
};
struct TextScore {
  double logp = 0;
  bool is_greedy = false;  // greedy decoding writes the text
  std::string problem = {};
};

struct EndpointUsage : ApiUsage {
  int64_t failed = 0;  // requests
  std::string first_failure = {};
};

class Endpoint {
 public:
  // Reads the API key. Throws if a setting is wrong.
  explicit Endpoint(EndpointConfig config);

  // One completion of a task: a chat completion if it has messages. index: of the task's completions, for its seed. Any
  // thread. Throws ApiRefusal if the server refuses every request, or an Error if this one failed for good.
  EndpointCompletion complete_one(const Task& task, const EndpointSampling& sampling, size_t index);
  // One chat completion or completion for each task and sample: chat if the task has messages. Throws if the server
  // refuses the key, the model or the path, or if every request fails.
  std::vector<EndpointReply> complete(std::span<const Task> tasks, const EndpointSampling& sampling,
                                      const std::string& what);
  // The log-likelihood of each continuation, from completions with echo and logprobs. Throws as complete() does, and if
  // the server gives no log-probs of a prompt.
  std::vector<TextScore> score(std::span<const ScoredText> texts);

  const EndpointConfig& config() const { return config_; }
  // Of all requests so far.
  EndpointUsage usage() const;
  double cost(const EndpointUsage& usage) const;

 private:
  // Calls request(i) for each i < count, on config_.concurrency threads. It returns what is wrong, or "".
  void run_all(size_t count, const std::string& what, const std::function<std::string(size_t i)>& request);

  EndpointConfig config_;
  ModelApi api_;
  mutable std::mutex mutex_;  // guards the members below
  int64_t failed_ = 0;
  std::string first_failure_;
};

}  // namespace hone
