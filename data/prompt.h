#pragma once
// How a prompt becomes tokens: as plain text, or as a user message in a chat format.
#include <optional>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/text/chat.h"
#include "core/text/tokenizer/tokenizer.h"
#include "data/sample.h"

namespace hone {

struct PromptFormat {
  std::string chat;    // "" | chatml | llama3 | plain | template | auto
  std::string system;  // the system message; empty: none
  void fields(Fields& f);
};

// Prompts and completions as ids. The chat template is parsed once. The tokenizer must outlive this object.
// One thread.
class PromptEncoder {
 public:
  PromptEncoder(PromptFormat format, const Tokenizer& tokenizer);

  // A task's prompt as the model reads it, up to the beginning of the completion. Messages are always rendered as chat
  // ("auto" if no format is named). Errors name the task.
  std::vector<int32_t> prompt(const Task& task);
  // Prompt and completion, mask 1 on the completion, which ends with the tokenizer's eos or the format's end of turn.
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

 private:
  const ChatFormat& chat();
  ChatTokens encode_switched(const std::vector<Message>& messages, size_t first_trained);
  bool is_chat(const Task& task) const { return !task.messages.empty() || !format_.chat.empty(); }

  PromptFormat format_;
  const Tokenizer& tokenizer_;
  std::optional<ChatFormat> chat_;
};

}  // namespace hone
