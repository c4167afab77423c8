#include "serve/response.h"

#include "serve/response_body.h"

namespace hone {

CompletionResponse::CompletionResponse(OpenAiRequest request, const ServedModel& model,
                                       std::shared_ptr<HttpTransaction> exchange, std::string id, int64_t created,
                                       Hooks hooks, std::shared_ptr<const void> kept)
    : request_(std::move(request)),
      model_(model),
      exchange_(std::move(exchange)),
      id_(std::move(id)),
      created_(created),
      hooks_(std::move(hooks)),
      kept_(std::move(kept)),
      done_(request_.prompts.size()),
      unfinished_(request_.prompts.size()) {
  for (const OpenAiPrompt& prompt : request_.prompts) prompt_tokens_ += static_cast<int64_t>(prompt.ids.size());
  if (request_.stream)
    for (int64_t i = 0; i < request_.num_replies(); ++i)
      choices_.push_back(
          {.text = Detokenizer(model.tokenizer, request_.sampling.stop, request_.sampling.min_tokens, !request_.chat)});
}

void CompletionResponse::on_token(size_t prompt, int64_t reply, const CompletionOutput& written) {
  if (ended_) return;
  if (!any_token_) hooks_.first_token();
  any_token_ = true;
  Choice& choice = choices_[prompt * static_cast<size_t>(request_.n) + static_cast<size_t>(reply)];
  std::string text = choice.text.add(written.ids.back());
  if (!text.empty() || !model_.tokenizer) send_part(prompt, reply, written, std::move(text), false);
}

void CompletionResponse::on_finish(size_t prompt, std::vector<CompletionOutput> replies) {
  if (ended_) return;
  for (const CompletionOutput& reply : replies) {
    if (reply.failed) return send_error(reply.refused ? 400 : 500, reply.finish_reason);
    completion_tokens_ += static_cast<int64_t>(reply.ids.size());
  }
  if (request_.stream) {
    for (size_t i = 0; i < replies.size(); ++i) {
      const Choice& choice = choices_[prompt * replies.size() + i];
      const std::string text = (request_.chat ? "" : leading_space(model_.tokenizer, replies[i].ids)) + replies[i].text;
      send_part(prompt, static_cast<int64_t>(i), replies[i], choice.text.rest(text), true);
    }
  } else {
    done_[prompt] = std::move(replies);
  }
  if (--unfinished_ > 0) return;
  request_.stream ? end_stream() : send_whole();
}

void CompletionResponse::end_stream() {
  if (request_.include_usage)
    send_event(event_json(request_, model_, id_, created_, {}, usage_json(prompt_tokens_, completion_tokens_)));
  ended_ = true;
  on_finished(200);
  exchange_->write("data: [DONE]\n\n");
  exchange_->end();
}

void CompletionResponse::on_failure(const std::string& reason) { send_error(500, reason); }

void CompletionResponse::client_disconnected() { on_finished(499); }

void CompletionResponse::send_part(size_t prompt, int64_t reply, const CompletionOutput& written, std::string text,
                                   bool last) {
  const size_t index = prompt * static_cast<size_t>(request_.n) + static_cast<size_t>(reply);
  Choice& choice = choices_[index];
  const ChoiceDelta part{.index = static_cast<int64_t>(index),
                         .text = std::move(text),
                         .begin = choice.sent,
                         .end = written.ids.size(),
                         .first = !choice.begun,
                         .last = last};
  choice.begun = true;
  choice.sent = written.ids.size();
  JsonArray one;
  one.push_back(choice_json(request_, request_.prompts[prompt], model_, written, part, choice.text_offset));
  send_event(event_json(request_, model_, id_, created_, std::move(one), nullptr));
}

void CompletionResponse::send_event(const Json& event) {
  const std::string line = "data: " + event.dump() + "\n\n";
  if (begun_) {
    exchange_->write(line);
    return;
  }
  begun_ = true;
  exchange_->begin({.body = line,
                    .content_type = "text/event-stream",
                    .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
}

// An answer of one piece is sent with its length.
void CompletionResponse::send_whole() {
  const auto body =
      std::make_shared<AnswerBody>(AnswerBody::Parts{.request = request_,
                                                     .id = id_,
                                                     .created = created_,
                                                     .replies = std::move(done_),
                                                     .usage = usage_json(prompt_tokens_, completion_tokens_),
                                                     .kept = std::move(kept_)},
                                   model_);
  HttpServerResponse reply;
  const bool more = body->next(reply.body);
  ended_ = true;
  on_finished(200);
  more ? exchange_->reply(std::move(reply), [body](std::string& out) { return body->next(out); })
       : exchange_->reply(std::move(reply));
}

// In a stream that has begun the error is an event, and the last.
void CompletionResponse::send_error(int status, const std::string& message) {
  if (ended_) return;
  const Json error = error_json(status, message);
  ended_ = true;
  done_.clear();
  on_finished(status);
  if (begun_) {
    send_event(error);
    exchange_->end();
  } else {
    exchange_->reply({.status = status, .body = error.dump()});
  }
}

void CompletionResponse::on_finished(int status) {
  {
    const std::lock_guard lock(over_mutex_);
    if (over_) return;
    over_ = true;
  }
  hooks_.on_finished(status);
}

}  // namespace hone
