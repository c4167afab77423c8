#pragma once
// PromptLogprobsApi: the log-probs of given token ids from an OpenAI-compatible server. A server must return them for
// every token but the first, under the same ids: a missing one is an Error, never a 0.
#include <span>
#include <string>
#include <vector>

#include "core/net/model_api.h"
#include "core/text/tokenizer/tokenizer.h"
#include "posttrain/teacher/top_logprobs.h"
#include "train/teacher.h"

namespace hone {

// Of one sequence. logp[0] is 0. top: ids and log-probs of the most likely tokens at each position, most likely first;
// empty at the first position, and everywhere unless asked for.
struct ServedLogprobs {
  std::vector<float> logp;
  TopLogprobs top;
};

// One thread; requests run side by side.
class PromptLogprobsApi {
 public:
  // tokenizer: the student's. It must outlive this object.
  PromptLogprobsApi(const TeacherEndpoint& config, const Tokenizer& tokenizer);

  // top: number of most likely tokens to return. Throws an Error that names the server: if it refuses requests, fails
  // after all retries, returns no log-probs of a prompt, or has other tokens.
  std::vector<ServedLogprobs> logprobs(std::span<const std::vector<int32_t>> sequences, int64_t top);

 private:
  ServedLogprobs ask(const std::string& api, const std::vector<int32_t>& ids, int64_t top);
  // Finds out which of the two the server knows, with the first sequence.
  void choose_api(const std::vector<int32_t>& ids, int64_t top);
  [[noreturn]] void fail_request(const std::string& problem) const;

  const TeacherEndpoint config_;
  const Tokenizer& tokenizer_;
  ModelApi api_;
  std::string chosen_;  // vllm | echo; "" until the first request of auto
};

}  // namespace hone
