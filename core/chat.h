#pragma once
// Chat messages to tokens with masks: one renderer for SFT, rollouts and the server. Built-in formats are "chatml", "llama3" and "plain";
// "template" is the model folder's own Jinja. Text is rendered in pieces and each piece is encoded by itself, so that an assistant's reply has
// the same ids whether it was sampled or read; ids that were sampled are kept as ids and never re-tokenised.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/tokenizer.h"

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

// What a template's strftime_now reads unless told otherwise, 2024-07-26: a constant and not the clock, so that a run repeats.
inline constexpr int64_t kChatDate = 1721952000;

struct ChatParts;

class ChatFormat {
 public:
  // name: chatml | llama3 | plain | template (needs tokenizer.chat_template()) | auto (template if there is one, else chatml if its tokens are
  // in the vocabulary, else plain). plain: the tokenizer's BOS if it begins documents with one, then content + "\n" for every message but the
  // assistant's, which is content + EOS; there is no header. Parses the template: keep the result. today: seconds since 1970.
  static ChatFormat make(std::string_view name, const Tokenizer& tokenizer, int64_t today = kChatDate);

  // What make() takes.
  static std::vector<std::string> names();

  // Pieces of the conversation; with add_generation_prompt the header that an assistant's reply follows. A template's own complaint
  // (raise_exception) and unsupported syntax are Errors.
  //
  // What a template wrote inside {% generation %} is the assistant's. A template without it is rendered again with fewer messages: a reply is
  // what follows the prompt for it, up to its end-of-turn token; an Error says where that cannot be told, because the template writes earlier
  // turns in another way once more follow. With add_generation_prompt nothing is trained on and such a text is one piece.
  std::vector<ChatPiece> render(const std::vector<Message>& messages, bool add_generation_prompt) const;
  ChatTokens encode(const Tokenizer& tokenizer, const std::vector<Message>& messages, bool add_generation_prompt) const;
  // Ids that end the assistant's turn in this format, besides the tokenizer's own.
  std::vector<int32_t> stop_ids(const Tokenizer& tokenizer) const;

 private:
  std::shared_ptr<const ChatParts> parts_;
};

// {"role": ..., "content": ...} objects as messages, other members kept in extra; a message with tool_calls may lack content. `source` names
// the line in errors.
std::vector<Message> parse_messages(const Json& messages, std::string_view source);

}  // namespace hone
