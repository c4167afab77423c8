#pragma once
// How a prompt becomes tokens: as plain text, or as a user message in a chat format.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/text/chat.h"
#include "core/text/chat_settings.h"
#include "core/text/tokenizer/tokenizer.h"
#include "data/sample.h"

namespace hone {

struct PromptFormat {
  std::string chat;    // "" | template | auto | a built-in template
  std::string system;  // the system message; empty: none
  ChatSettings settings = {};
  void fields(Fields& f);
  // True if a prompt's text is a user's message. A chat template means that it is.
  bool is_chat() const { return !chat.empty() || !settings.chat_template.empty(); }
  // The key that names the template, for messages.
  const char* key() const { return settings.chat_template.empty() ? "chat" : "chat_template"; }
  ChatFormat chat_format(const Tokenizer& tokenizer) const;
  // The tokenizer that a model trained on this format is saved with: its chat template is the one used.
  Tokenizer saved_tokenizer(const Tokenizer& tokenizer) const;
};

// What a token of a sample is.
enum class TokenRole : uint8_t { format, system, user, assistant, tool, prompt, completion, text };
std::string_view name_of(TokenRole role);

// What `hone data show` needs to know of a sample besides the sample.
struct SampleTrace {
  std::string where;             // the row
  std::vector<TokenRole> roles;  // one for each token, before truncation
};

// Prompts and completions as ids. The chat template is parsed once. The tokenizer must outlive this object.
// One thread.
class PromptEncoder {
 public:
  PromptEncoder(PromptFormat format, const Tokenizer& tokenizer);

  // A task's prompt as the model reads it, up to the beginning of the completion. Messages are always rendered as chat
  // ("auto" if no format is named), with the variables of the task's row. Errors name the task.
  std::vector<int32_t> prompt(const Task& task);
  // The task's messages with the variables of its row; a prompt without messages is a user's message.
  std::vector<Message> messages(const Task& task) const;
  // Prompt and completion as text, mask 1 on the completion, which ends with the tokenizer's eos.
  Sample sample(const std::string& prompt, const std::string& completion);
  // A conversation, mask 1 on the assistant's text in its messages from `first_trained` on whose switch of the loss
  // (loss_switch() in data/conversation.h) is not off.
  Sample sample(const std::vector<Message>& messages, size_t first_trained = 0);
  // A conversation followed by `reply`. The mask is 1 on the assistant's messages in `reply`, 0 on earlier ones.
  Sample sample(const std::vector<Message>& prompt, const std::vector<Message>& completion);
  // A prompt in a chat format: the system message, then the text as a user message.
  std::vector<Message> conversation(const std::string& prompt) const;
  // Ids that end a completion in the task's chat format, besides those of the tokenizer.
  std::vector<int32_t> stop_ids(const Task& task);
  bool is_chat() const { return format_.is_chat(); }
  // The roles of the tokens that sample() makes of a conversation, or prompt() of a task.
  std::vector<TokenRole> roles(const std::vector<Message>& messages, size_t first_trained);
  std::vector<TokenRole> prompt_roles(const Task& task);

 private:
  const ChatFormat& chat();
  std::vector<TokenRole> roles_of(const std::vector<Message>& messages, std::span<const ChatPiece> pieces);
  ChatTokens encode_switched(const std::vector<Message>& messages, size_t first_trained);
  bool is_chat(const Task& task) const { return !task.messages.empty() || format_.is_chat(); }

  PromptFormat format_;
  const Tokenizer& tokenizer_;
  std::optional<ChatFormat> chat_;
};

}  // namespace hone
