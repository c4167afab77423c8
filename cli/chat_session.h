#pragma once
// ChatSession: a conversation with a model. The conversation is kept as ids too: the model's messages are never
// tokenized again.
#include <optional>
#include <string>
#include <vector>

#include "core/text/chat.h"
#include "core/text/tokenizer/tokenizer.h"
#include "rollout/engine.h"

namespace hone {

class ChatSession {
 public:
  // The engine and the tokenizer must outlive the session.
  ChatSession(Engine& engine, const Tokenizer& tokenizer, ChatFormat format, SamplingParams sampling);

  // Generates and prints the reply to a message. Ctrl-C (take_interrupt(), core/base/interrupt.h) ends the reply; the
  // part that was printed stays in the conversation. An Error leaves the conversation unchanged.
  void send(const std::string& text);
  // Drops the last reply and generates another one. False if there is none.
  bool regenerate();
  // Replaces the system message; empty = none. The conversation stays.
  void set_system(const std::string& text);
  // Forgets all messages but the system message.
  void reset();

  const std::vector<Message>& messages() const { return history_; }
  void set_messages(std::vector<Message> messages);

 private:
  bool has_system() const { return !history_.empty() && history_.front().role == "system"; }
  void reply(std::vector<Message> shown, std::vector<int32_t> prompt);
  std::vector<int32_t> extend(const std::vector<Message>& shown) const;
  std::string text_up_to_last_completion() const;
  CompletionOutput generate(GenerationRequest request);

  Engine& engine_;
  const Tokenizer& tokenizer_;
  ChatFormat format_;
  SamplingParams sampling_;
  std::vector<Message> history_;
  std::vector<int32_t> ids_;  // of history_; empty: not encoded yet
  uint64_t turn_ = 0;         // decides the random numbers of a reply
};

}  // namespace hone
