#pragma once
// What a client of the server asks, read from OpenAI's JSON (https://platform.openai.com/docs/api-reference:
// completions, chat; further members are vLLM's: top_k, min_p, repetition_penalty, min_tokens, ignore_eos,
// stop_token_ids, add_special_tokens, return_token_ids).
#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "core/net/http_error.h"
#include "core/text/chat.h"
#include "core/text/tokenizer/tokenizer.h"
#include "rollout/engine.h"

namespace hone {

struct ServedModel {
  std::vector<std::string> names;  // the first is what answers and /v1/models say
  const Tokenizer* tokenizer = nullptr;
  const ChatFormat* chat = nullptr;  // null: no tokenizer, no chat
  std::vector<int64_t> chat_stop_ids = {};
  int64_t vocab_size = 0, max_positions = 0;
  int64_t kv_cache_tokens = 0;
  int64_t max_pending_completions = 0;  // of one request
  int64_t seed = 0;                     // of requests without one
  int64_t max_answer_bytes = int64_t{256} << 20;
};

struct OpenAiPrompt {
  std::string text;  // as it was given, or the ids' text
  std::vector<int32_t> ids;
};

struct OpenAiRequest {
  bool chat = false, stream = false, include_usage = false, echo = false;
  bool logprobs = false;
  int64_t top_logprobs = 0;
  bool return_token_ids = false;
  int64_t n = 1;
  bool seeded = false;
  SamplingParams sampling;
  std::vector<OpenAiPrompt> prompts;

  int64_t num_replies() const { return n * static_cast<int64_t>(prompts.size()); }
  // What the answer has, and takes in memory on its way, at most: reckoned from what is asked, by what tokens and
  // numbers usually take in JSON.
  int64_t answer_bytes(const ServedModel& model) const;
  // What the engine is asked: one for each prompt. With a seed of its own a request's ids are 0, 1, ...: the same
  // request, the same answer. Otherwise they count on from first_id.
  std::vector<GenerationRequest> requests(uint64_t first_id) const;
};

// Errors are HttpErrors: 400, or 404 for another model.
OpenAiRequest parse_completion(const Json& body, const ServedModel& model);
OpenAiRequest parse_chat(const Json& body, const ServedModel& model);

}  // namespace hone
