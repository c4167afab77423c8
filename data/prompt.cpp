#include "data/prompt.h"

#include <algorithm>
#include <array>

#include "core/base/suggest.h"
#include "core/text/tokenizer/pieces.h"
#include "data/conversation.h"

namespace hone {

void PromptFormat::fields(Fields& f) {
  f("chat", chat,
    "chat format of prompts: empty (the text itself) | template (the model's) | auto (the model's, else chatml or "
    "plain) | a built-in name (hone list chat-templates)");
  f("system", system, "system message of every conversation; empty = none");
  settings.fields(f);
  const std::vector<std::string> known = ChatFormat::names();
  f.require("chat", chat.empty() || std::find(known.begin(), known.end(), chat) != known.end(),
            concat("unknown chat format '", chat, "'", suggestion(chat, known), "; known: ", join(known)));
  f.require("system", system.empty() || is_chat(), "a system message needs a chat format (chat = \"auto\", ...)");
  f.require("chat_template", settings.chat_template.empty() || chat.empty() || chat == "auto" || chat == "template",
            concat("chat = \"", chat, "\" names a template, too; remove chat or chat_template"));
}

ChatFormat PromptFormat::chat_format(const Tokenizer& tokenizer) const {
  return ChatFormat::make(chat.empty() ? "auto" : chat, settings.with_settings(tokenizer));
}

Tokenizer PromptFormat::saved_tokenizer(const Tokenizer& tokenizer) const {
  Tokenizer out = settings.with_template(tokenizer);
  return chat.empty() ? std::move(out) : with_chat_format(out, chat);
}

namespace {

TokenRole role_of(const Message& message) {
  return message.role == "system"      ? TokenRole::system
         : message.role == "assistant" ? TokenRole::assistant
         : message.role == "tool"      ? TokenRole::tool
                                       : TokenRole::user;
}

}  // namespace

std::string_view name_of(TokenRole role) {
  constexpr std::array<std::string_view, 8> names = {"format", "system", "user",       "assistant",
                                                     "tool",   "prompt", "completion", "text"};
  return names.at(static_cast<size_t>(role));
}

PromptEncoder::PromptEncoder(PromptFormat format, const Tokenizer& tokenizer)
    : format_(std::move(format)), tokenizer_(tokenizer) {
  if (format_.is_chat()) chat_ = format_.chat_format(tokenizer_);
}

const ChatFormat& PromptEncoder::chat() {
  if (!chat_) chat_ = format_.chat_format(tokenizer_);
  return *chat_;
}

std::vector<Message> PromptEncoder::conversation(const std::string& prompt) const {
  std::vector<Message> out;
  if (!format_.system.empty()) out.push_back({"system", format_.system, {}});
  out.push_back({"user", prompt, {}});
  return out;
}

std::vector<Message> PromptEncoder::messages(const Task& task) const {
  std::vector<Message> out = task.messages.empty() ? conversation(task.prompt) : task.messages;
  attach_row_variables(out, task.columns, task.id);
  return out;
}

std::vector<int32_t> PromptEncoder::prompt(const Task& task) {
  if (!is_chat(task)) return tokenizer_.encode_document(task.prompt);
  const std::vector<Message> conversation = messages(task);
  try {
    return chat().encode(tokenizer_, conversation, true).ids;
  } catch (const Error& error) {  // adds the task: the template does not know it
    fail(task.id, ": ", error.what());
  }
}

Sample PromptEncoder::sample(const std::string& prompt, const std::string& completion) {
  Sample out;
  PromptWithCompletion encoded = encode_completion(prompt, completion, tokenizer_);
  out.tokens = std::move(encoded.ids);
  if (tokenizer_.eos()) out.tokens.push_back(*tokenizer_.eos());
  set_mask(out, encoded.prompt_length);
  out.completion.text = completion;
  return out;
}

// The pieces with mask 1 are the assistant's messages in order, so that each finds its switch.
ChatTokens PromptEncoder::encode_switched(const std::vector<Message>& messages, size_t first_trained) {
  std::vector<bool> switches;
  for (size_t i = first_trained; i < messages.size(); ++i)
    if (messages[i].role == "assistant") switches.push_back(loss_switch(messages[i]).value_or(true));
  const std::vector<ChatPiece> pieces = chat().render(messages, false, first_trained);
  HONE_CHECK(
      std::ranges::count_if(pieces, &ChatPiece::assistant) == std::ssize(switches),
      "the chat template does not write a turn for each of the assistant's ", switches.size(),
      " messages, so that a message's switch of the loss (train, loss, weight) has no effect; remove the switches");
  ChatTokens out;
  auto next = switches.begin();
  for (const ChatPiece& piece : pieces) {
    append_ids(out.ids, piece.text, tokenizer_);
    const bool trained = piece.assistant && *next++;
    out.mask.resize(out.ids.size(), trained ? 1.0f : 0.0f);
  }
  return out;
}

Sample PromptEncoder::sample(const std::vector<Message>& messages, size_t first_trained) {
  const bool switched = std::ranges::any_of(messages, [](const Message& m) { return loss_switch(m).has_value(); });
  ChatTokens tokens =
      switched ? encode_switched(messages, first_trained) : chat().encode(tokenizer_, messages, false, first_trained);
  Sample out;
  out.tokens = std::move(tokens.ids);
  if (!tokens.mask.empty()) tokens.mask[0] = 0;
  out.columns.set(columns::mask, std::move(tokens.mask));
  return out;
}

Sample PromptEncoder::sample(const std::vector<Message>& prompt, const std::vector<Message>& completion) {
  std::vector<Message> messages = prompt;
  messages.insert(messages.end(), completion.begin(), completion.end());
  Sample out = sample(messages, prompt.size());
  if (!completion.empty()) out.completion.text = completion.back().content;
  return out;
}

// A token has the role of the text that it ends in.
std::vector<TokenRole> PromptEncoder::roles_of(const std::vector<Message>& messages,
                                               std::span<const ChatPiece> pieces) {
  const std::vector<std::optional<TextSpan>> spans = chat().content_spans(messages);
  std::vector<TokenRole> out;
  std::vector<int32_t> ids;
  size_t begin = 0;
  for (const ChatPiece& piece : pieces) {
    append_ids(ids, piece.text, tokenizer_);
    for (const size_t end_in_piece : token_ends(std::span(ids).subspan(out.size()), piece.text, tokenizer_)) {
      const size_t end = begin + end_in_piece;
      TokenRole role = piece.assistant ? TokenRole::assistant : TokenRole::format;
      for (size_t i = 0; i < spans.size() && !piece.assistant; ++i)
        if (spans[i] && end > spans[i]->begin && end <= spans[i]->end) role = role_of(messages[i]);
      out.push_back(role);
    }
    begin += piece.text.size();
  }
  return out;
}

std::vector<TokenRole> PromptEncoder::roles(const std::vector<Message>& messages, size_t first_trained) {
  return roles_of(messages, chat().render(messages, false, first_trained));
}

std::vector<TokenRole> PromptEncoder::prompt_roles(const Task& task) {
  if (!is_chat(task)) return std::vector<TokenRole>(prompt(task).size(), TokenRole::prompt);
  const std::vector<Message> conversation = messages(task);
  return roles_of(conversation, chat().render(conversation, true));
}

std::vector<int32_t> PromptEncoder::stop_ids(const Task& task) {
  return is_chat(task) ? chat().stop_ids(tokenizer_) : std::vector<int32_t>{};
}

}  // namespace hone
