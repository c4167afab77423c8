#include "cli/chat_session.h"

#include <algorithm>
#include <cstdio>

#include "core/base/interrupt.h"
#include "core/text/tokenizer/pieces.h"

namespace hone {

ChatSession::ChatSession(Engine& engine, const Tokenizer& tokenizer, ChatFormat format, SamplingParams sampling)
    : engine_(engine), tokenizer_(tokenizer), format_(std::move(format)), sampling_(std::move(sampling)) {
  for (const int32_t id : format_.stop_ids(tokenizer)) sampling_.stop_ids.push_back(id);
}

void ChatSession::send(const std::string& text) {
  std::vector<Message> shown = history_;
  shown.push_back({"user", text, {}});
  std::vector<int32_t> prompt = extend(shown);
  reply(std::move(shown), std::move(prompt));
}

bool ChatSession::regenerate() {
  if (history_.empty() || history_.back().role != "assistant") return false;
  std::vector<Message> shown(history_.begin(), history_.end() - 1);
  std::vector<int32_t> prompt = format_.encode(tokenizer_, shown, true).ids;
  reply(std::move(shown), std::move(prompt));
  return true;
}

void ChatSession::set_system(const std::string& text) {
  if (has_system()) history_.erase(history_.begin());
  if (!text.empty()) history_.insert(history_.begin(), {"system", text, {}});
  ids_.clear();
}

void ChatSession::reset() {
  history_.resize(has_system() ? 1 : 0);
  ids_.clear();
}

void ChatSession::set_messages(std::vector<Message> messages) {
  history_ = std::move(messages);
  ids_.clear();
}

void ChatSession::reply(std::vector<Message> shown, std::vector<int32_t> prompt) {
  const CompletionOutput completion = generate({prompt, 1, turn_++, sampling_});
  HONE_CHECK(!completion.failed, completion.finish_reason);
  if (completion.ids.empty()) return;  // Ctrl-C before the first token
  history_ = std::move(shown);
  history_.push_back({"assistant", completion.text, {}});
  ids_ = std::move(prompt);
  ids_.insert(ids_.end(), completion.ids.begin(), completion.ids.end());
}

// Returns the ids so far, extended by the format's text after the last assistant message. Encodes the whole
// conversation again if that message was cut off, or the format now renders it differently (Qwen3 drops the thinking
// of earlier turns).
std::vector<int32_t> ChatSession::extend(const std::vector<Message>& shown) const {
  const std::vector<int32_t> ends = tokenizer_.stop_ids(), format_ends = format_.stop_ids(tokenizer_);
  const auto is_end = [&](int32_t id) {
    return std::ranges::find(ends, id) != ends.end() || std::ranges::find(format_ends, id) != format_ends.end();
  };
  const std::string before = ids_.empty() || !is_end(ids_.back()) ? "" : text_up_to_last_completion();
  std::string after;
  for (const ChatPiece& piece : format_.render(shown, true)) after += piece.text;
  if (before.empty() || !after.starts_with(before)) return format_.encode(tokenizer_, shown, true).ids;
  std::vector<int32_t> out = ids_;
  append_ids(out, std::string_view(after).substr(before.size()), tokenizer_);
  return out;
}

// The conversation's text up to the end of its last assistant message; "" if the template does not mark that text.
std::string ChatSession::text_up_to_last_completion() const {
  std::string out, text;
  try {
    for (const ChatPiece& piece : format_.render(history_, false, history_.size() - 1)) {
      text += piece.text;
      if (piece.assistant) out = text;
    }
  } catch (const Error&) {  // extend() then encodes the whole conversation
    return "";
  }
  return out;
}

CompletionOutput ChatSession::generate(GenerationRequest request) {
  CompletionOutput out;
  bool stopped = false;
  take_interrupt();  // one before the reply does not end it
  const uint64_t ticket = engine_.submit(
      std::move(request),
      [&](uint64_t, std::vector<CompletionOutput> completions) { out = std::move(completions.front()); },
      [&](uint64_t, int64_t, const CompletionOutput& completion) {
        stopped = stopped || take_interrupt();
        if (stopped) return engine_.end_step();
        const int32_t id = completion.ids.back();
        out.ids = completion.ids;
        if (tokenizer_.is_special(id)) return;
        std::fputs(tokenizer_.token_bytes(id).c_str(), stdout);
        std::fflush(stdout);
      });
  while (engine_.step()) {
    stopped = stopped || take_interrupt();
    if (stopped) engine_.cancel(ticket);
  }
  if (stopped) out.text = tokenizer_.decode(out.ids, true);
  std::printf("\n");
  return out;
}

}  // namespace hone
