#pragma once
// The server's answers as OpenAI's JSON. A choice is made of a part of a reply: all of it, or what is new since the
// last event of a stream.
#include <cstdint>
#include <span>
#include <string>

#include "core/io/json.h"
#include "serve/openai_request.h"

namespace hone {

// A part of one choice's answer.
struct ChoiceDelta {
  int64_t index = 0;
  std::string text;           // without the prompt's
  size_t begin = 0, end = 0;  // of the reply's tokens
  bool first = false;         // the prompt is echoed before it, where that is asked for
  bool last = false;          // the reply ends with it
};

// The tokens of a part with their log-probs, as the columns of "logprobs": a completion's, which begin with those of
// the prompt where it is echoed, or a chat's. Log-probs are of log_softmax(logits): Reply::raw_logp, which temperature,
// penalties and truncation leave alone.
class LogprobTokens {
 public:
  struct Column {
    const char* name = "";
    bool listed = false;  // an entry for each token; otherwise the column is null
  };
  // Everything is the caller's.
  LogprobTokens(const OpenAiRequest& request, const OpenAiPrompt& prompt, const ServedModel& model,
                const CompletionOutput& reply, const ChoiceDelta& part);
  std::span<const Column> columns() const;
  size_t size() const { return size_; }  // of a listed column
  // The column "text_offset" counts characters from the beginning of the choice's text, entry after entry: it moves
  // text_offset on.
  Json entry(size_t column, size_t i, int64_t& text_offset) const;
  // All of them.
  Json json(int64_t& text_offset) const;

 private:
  struct Token {
    int32_t id = 0;
    Json logp;  // null where there is none
    std::span<const TokenLogp> top;
  };
  Token token(size_t i) const;
  Json offset(size_t i, int64_t& text_offset) const;
  Json chat_entry(size_t i) const;

  const OpenAiRequest& request_;
  const OpenAiPrompt& prompt_;
  const ServedModel& model_;
  const CompletionOutput& reply_;
  const size_t begin_, echoed_, size_;
  const int64_t prompt_characters_;  // where it is echoed
};

// A choice: what stands before its log-probs and after them. With streamed a delta takes a chat's message's place.
JsonObject choice_front(const OpenAiRequest& request, const OpenAiPrompt& prompt, const ChoiceDelta& part,
                        bool streamed);
JsonObject choice_back(const OpenAiRequest& request, const OpenAiPrompt& prompt, const CompletionOutput& reply,
                       const ChoiceDelta& part);
// And all of it, of a stream's event.
Json choice_json(const OpenAiRequest& request, const OpenAiPrompt& prompt, const ServedModel& model,
                 const CompletionOutput& reply, const ChoiceDelta& part, int64_t& text_offset);

// What stands before an answer's choices.
JsonObject answer_front(const OpenAiRequest& request, const ServedModel& model, const std::string& id, int64_t created,
                        bool streamed);
// An event of a stream; usage may be null.
Json event_json(const OpenAiRequest& request, const ServedModel& model, const std::string& id, int64_t created,
                JsonArray choices, Json usage);
Json usage_json(int64_t prompt_tokens, int64_t completion_tokens);

// A token as text: its bytes, or "bytes:\xe2\x96" (OpenAI's spelling) where they are no whole characters.
std::string token_text(const Tokenizer* tokenizer, int32_t id);

}  // namespace hone
