#include "rollout/answer.h"

namespace hone {

Answer::Answer(ServeRequest request, const ServedModel& model, std::shared_ptr<Exchange> exchange, std::string id, int64_t created, Hooks hooks)
    : request_(std::move(request)),
      model_(model),
      exchange_(std::move(exchange)),
      id_(std::move(id)),
      created_(created),
      hooks_(std::move(hooks)),
      done_(request_.prompts.size()),
      unfinished_(request_.prompts.size()) {
  for (const ServePrompt& prompt : request_.prompts) prompt_tokens_ += static_cast<int64_t>(prompt.ids.size());
  if (request_.stream)
    for (int64_t i = 0; i < request_.num_replies(); ++i)
      choices_.push_back({.text = ReplyText(model.tokenizer, request_.sampling.stop, request_.sampling.min_tokens, !request_.chat)});
}

void Answer::on_token(size_t prompt, int64_t reply, const Reply& written) {
  if (failed_) return;
  if (!any_token_) hooks_.first_token();
  any_token_ = true;
  Choice& choice = choices_[prompt * static_cast<size_t>(request_.n) + static_cast<size_t>(reply)];
  std::string text = choice.text.add(written.ids.back());
  if (!text.empty() || !model_.tokenizer) send_part(prompt, reply, written, std::move(text), false);
}

void Answer::on_finish(size_t prompt, std::vector<Reply> replies) {
  if (failed_) return;
  for (const Reply& reply : replies) {
    if (reply.failed) return complain(400, reply.finish_reason);
    completion_tokens_ += static_cast<int64_t>(reply.ids.size());
  }
  if (request_.stream) {
    for (size_t i = 0; i < replies.size(); ++i) {
      const Choice& choice = choices_[prompt * replies.size() + i];
      send_part(prompt, static_cast<int64_t>(i), replies[i], choice.text.rest(text_of(replies[i])), true);
    }
  } else {
    done_[prompt] = std::move(replies);
  }
  if (--unfinished_ > 0) return;
  if (!request_.stream) return send_whole();
  if (request_.include_usage) send_event(answer_json(request_, model_, id_, created_, {}, usage_json(prompt_tokens_, completion_tokens_), true));
  over(200);
  exchange_->write("data: [DONE]\n\n");
  exchange_->end();
}

void Answer::on_failure(const std::string& reason) { complain(500, "the engine has stopped: " + reason); }

void Answer::client_left() { over(499); }

// A completion goes on from its prompt; a chat's reply is a text of its own.
std::string Answer::text_of(const Reply& reply) const { return (request_.chat ? "" : lead_of(model_.tokenizer, reply.ids)) + reply.text; }

void Answer::send_part(size_t prompt, int64_t reply, const Reply& written, std::string text, bool last) {
  const size_t index = prompt * static_cast<size_t>(request_.n) + static_cast<size_t>(reply);
  Choice& choice = choices_[index];
  const ChoicePart part{.index = static_cast<int64_t>(index),
                        .text = std::move(text),
                        .begin = choice.sent,
                        .end = written.ids.size(),
                        .first = !choice.begun,
                        .last = last};
  choice.begun = true;
  choice.sent = written.ids.size();
  JsonArray one;
  one.push_back(request_.chat ? chat_choice(request_, model_, written, part, true)
                              : completion_choice(request_, request_.prompts[prompt], model_, written, part, choice.text_offset));
  send_event(answer_json(request_, model_, id_, created_, std::move(one), nullptr, true));
}

void Answer::send_event(const Json& event) {
  const std::string line = "data: " + event.dump() + "\n\n";
  if (begun_) {
    exchange_->write(line);
    return;
  }
  begun_ = true;
  exchange_->begin({.body = line, .content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
}

void Answer::send_whole() {
  JsonArray choices;
  for (size_t prompt = 0; prompt < done_.size(); ++prompt)
    for (const Reply& reply : done_[prompt]) {
      const ChoicePart part{
          .index = static_cast<int64_t>(choices.size()), .text = text_of(reply), .begin = 0, .end = reply.ids.size(), .first = true, .last = true};
      int64_t text_offset = 0;
      choices.push_back(request_.chat ? chat_choice(request_, model_, reply, part, false)
                                      : completion_choice(request_, request_.prompts[prompt], model_, reply, part, text_offset));
    }
  over(200);
  exchange_->reply(
      {.body = answer_json(request_, model_, id_, created_, std::move(choices), usage_json(prompt_tokens_, completion_tokens_), false).dump()});
}

// In a stream that has begun the error is an event, and the last.
void Answer::complain(int status, const std::string& message) {
  const Json error = error_json(status, message);
  failed_ = true;
  over(status);
  if (begun_) {
    send_event(error);
    exchange_->end();
  } else {
    exchange_->reply({.status = status, .body = error.dump()});
  }
}

void Answer::over(int status) {
  {
    const std::lock_guard lock(over_mutex_);
    if (over_) return;
    over_ = true;
  }
  hooks_.over(status);
}

}  // namespace hone
