#include "posttrain/prompt.h"

#include <algorithm>

#include "core/suggest.h"

namespace hone {

void PromptFormat::fields(Fields& f) {
  f("chat", chat, "chat format of prompts: empty (plain text) | chatml | llama3 | plain | template | auto");
  f("system", system, "system message of every conversation; empty = none");
  const std::vector<std::string> known = ChatFormat::names();
  f.require("chat", chat.empty() || std::find(known.begin(), known.end(), chat) != known.end(),
            concat("unknown chat format '", chat, "'", suggestion(chat, known), "; known: ", join(known)));
  f.require("system", system.empty() || !chat.empty(), "a system message needs a chat format (chat = \"auto\", ...)");
}

PromptEncoder::PromptEncoder(PromptFormat format, const Tokenizer& tokenizer) : format_(std::move(format)), tokenizer_(tokenizer) {
  if (!format_.chat.empty()) chat_ = ChatFormat::make(format_.chat, tokenizer_);
}

const ChatFormat& PromptEncoder::chat() {
  if (!chat_) chat_ = ChatFormat::make("auto", tokenizer_);
  return *chat_;
}

std::vector<Message> PromptEncoder::conversation(const std::string& prompt) const {
  std::vector<Message> out;
  if (!format_.system.empty()) out.push_back({"system", format_.system, {}});
  out.push_back({"user", prompt, {}});
  return out;
}

std::vector<int32_t> PromptEncoder::prompt(const Task& task) {
  if (!task.messages.empty()) return chat().encode(tokenizer_, task.messages, true).ids;
  if (format_.chat.empty()) return tokenizer_.encode_document(task.prompt);
  return chat().encode(tokenizer_, conversation(task.prompt), true).ids;
}

Sample PromptEncoder::sample(const std::string& prompt, const std::string& completion) {
  Sample out;
  if (format_.chat.empty()) {
    out.tokens = tokenizer_.encode_document(prompt);
    out.mask.assign(out.tokens.size(), 0.0f);
    const std::vector<int32_t> reply = tokenizer_.encode(completion);
    out.tokens.insert(out.tokens.end(), reply.begin(), reply.end());
    if (tokenizer_.eos()) out.tokens.push_back(*tokenizer_.eos());
    out.mask.resize(out.tokens.size(), 1.0f);
    if (!out.mask.empty()) out.mask[0] = 0;
  } else {
    std::vector<Message> messages = conversation(prompt);
    messages.push_back({"assistant", completion, {}});
    out = sample(messages);
  }
  out.completion.text = completion;
  return out;
}

Sample PromptEncoder::sample(const std::vector<Message>& messages) {
  ChatTokens tokens = chat().encode(tokenizer_, messages, false);
  Sample out;
  out.tokens = std::move(tokens.ids);
  out.mask = std::move(tokens.mask);
  if (!out.mask.empty()) out.mask[0] = 0;
  return out;
}

Sample PromptEncoder::sample(const std::vector<Message>& prompt, const std::vector<Message>& reply) {
  std::vector<Message> messages = prompt;
  messages.insert(messages.end(), reply.begin(), reply.end());
  int64_t earlier = 0;
  for (const ChatPiece& piece : chat().render(prompt, false)) earlier += piece.assistant;
  Sample out;
  for (const ChatPiece& piece : chat().render(messages, false)) {
    const std::vector<int32_t> ids = tokenizer_.encode(piece.text);
    out.tokens.insert(out.tokens.end(), ids.begin(), ids.end());
    out.mask.resize(out.tokens.size(), piece.assistant && earlier-- <= 0 ? 1.0f : 0.0f);
  }
  if (!out.mask.empty()) out.mask[0] = 0;
  if (!reply.empty()) out.completion.text = reply.back().content;
  return out;
}

std::vector<int32_t> PromptEncoder::stop_ids() const { return chat_ ? chat_->stop_ids(tokenizer_) : std::vector<int32_t>{}; }

}  // namespace hone
