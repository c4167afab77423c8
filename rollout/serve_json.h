#pragma once
// The server's answers as OpenAI's JSON. A choice is made of a part of a reply: all of it, or what is new since the last event of a stream.
#include <cstdint>
#include <string>

#include "core/json.h"
#include "rollout/serve_request.h"

namespace hone {

// A part of one choice's answer.
struct ChoicePart {
  int64_t index = 0;
  std::string text;           // without the prompt's
  size_t begin = 0, end = 0;  // of the reply's tokens
  bool first = false;         // the prompt is echoed before it, where that is asked for
  bool last = false;          // the reply ends with it
};

// Log-probs are of log_softmax(logits): Reply::raw_logp, which temperature, penalties and truncation leave alone.
// text_offset counts characters from the beginning of the choice's text; it is moved on.
Json completion_choice(const ServeRequest& request, const ServePrompt& prompt, const ServedModel& model, const Reply& reply, const ChoicePart& part,
                       int64_t& text_offset);
// With streamed a delta takes the message's place.
Json chat_choice(const ServeRequest& request, const ServedModel& model, const Reply& reply, const ChoicePart& part, bool streamed);

// The object around choices; usage may be null.
Json answer_json(const ServeRequest& request, const ServedModel& model, const std::string& id, int64_t created, JsonArray choices, Json usage,
                 bool streamed);
Json usage_json(int64_t prompt_tokens, int64_t completion_tokens);

// A token as text: its bytes, or "bytes:\xe2\x96" (OpenAI's spelling) where they are no whole characters.
std::string token_text(const Tokenizer* tokenizer, int32_t id);

}  // namespace hone
