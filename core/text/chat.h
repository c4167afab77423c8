#pragma once
// Chat messages to tokens with masks: one renderer for SFT, rollouts and the server. Built-in formats are "chatml",
// "llama3" and "plain"; "template" is the model folder's own Jinja. Text is rendered in pieces and each piece is
// encoded by itself, so that an assistant's reply has the same ids whether it was sampled or read; ids that were
// sampled are kept as ids and never re-tokenised.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "core/text/tokenizer/tokenizer.h"

namespace hone {

struct Message {
  std::string role;  // system, user, assistant, tool
  std::string content;
  Json extra;  // null, or further members a template may read (tool_calls, name, ...)
};

struct ChatPiece {
  std::string text;
  bool assistant = false;  // written by the assistant: what SFT trains on (its end-of-turn token included)
};

struct ChatTokens {
  std::vector<int32_t> ids;
  std::vector<float> mask;  // 1 on the assistant's tokens
};

// What a template's strftime_now reads unless told otherwise, 2024-07-26: a constant and not the clock, so that a run
// repeats.
inline constexpr int64_t kChatDate = 1721952000;

struct ChatParts;

class ChatFormat {
 public:
  // name: chatml | llama3 | plain | template (needs tokenizer.chat_template()) | auto (template if there is one, else
  // chatml if its tokens are in the vocabulary, else plain). plain: the tokenizer's BOS if it begins documents with
  // one, then content + "\n" for every message but the assistant's, which is content + EOS; there is no header. Parses
  // the template: keep the result. today: seconds since 1970.
  static ChatFormat make(std::string_view name, const Tokenizer& tokenizer, int64_t today = kChatDate);

  // What make() takes.
  static std::vector<std::string> names();

  // Pieces of the conversation; with add_generation_prompt the header that an assistant's reply follows, and nothing is
  // trained on. A template's own complaint (raise_exception) and unsupported syntax are Errors.
  //
  // Without add_generation_prompt, the assistant's turns from message `first_trained` on are pieces of their own, each
  // up to its end-of-turn token. What a template wrote inside {% generation %} is the assistant's. Where it has no such
  // block the turns are found as ChatTemplate::assistant_spans() says; an Error names the message whose turn the
  // template does not show as its own.
  std::vector<ChatPiece> render(const std::vector<Message>& messages, bool add_generation_prompt,
                                size_t first_trained = 0) const;
  ChatTokens encode(const Tokenizer& tokenizer, const std::vector<Message>& messages, bool add_generation_prompt,
                    size_t first_trained = 0) const;
  // Ids that end the assistant's turn in this format. Of a template: the token that it writes behind a reply, none if
  // that is no token; of "plain", none besides the tokenizer's own.
  std::vector<int32_t> stop_ids(const Tokenizer& tokenizer) const;

 private:
  std::shared_ptr<const ChatParts> parts_;
};

// Messages as {"role": ..., "content": ...} objects with their other members: what parse_messages() reads.
Json messages_json(std::span<const Message> messages);
// {"role": ..., "content": ...} objects as messages, other members kept in extra; a message with tool_calls may lack
// content. `source` names the line in errors.
std::vector<Message> parse_messages(const Json& messages, std::string_view source);

}  // namespace hone
