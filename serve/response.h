#pragma once
// Answer: one request of a client from the engine's tokens to the bytes that are sent: whole as JSON, or as server-sent
// events.
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/net/http_transaction.h"
#include "core/text/detokenizer.h"
#include "rollout/async_engine.h"
#include "serve/openai_json.h"

namespace hone {

class CompletionResponse final : public CompletionListener {
 public:
  // What becomes known on the way: when the first token is there, and how it ended (the status of HTTP, or 499 for a
  // client that left).
  struct Hooks {
    std::function<void()> first_token;
    std::function<void(int status)> on_finished;
  };
  // id is what the answer is called; created its time in seconds since 1970. The model outlives it. kept is held until
  // the answer is sent, or nobody waits for it.
  CompletionResponse(OpenAiRequest request, const ServedModel& model, std::shared_ptr<HttpTransaction> exchange,
                     std::string id, int64_t created, Hooks hooks, std::shared_ptr<const void> kept = nullptr);
  void on_token(size_t prompt, int64_t reply, const CompletionOutput& written) override;
  void on_finish(size_t prompt, std::vector<CompletionOutput> replies) override;
  void on_failure(const std::string& reason) override;
  bool wants_tokens() const { return request_.stream; }
  void client_disconnected();

 private:
  // A choice of a stream: how much of it was sent.
  struct Choice {
    Detokenizer text;
    size_t sent = 0;  // tokens
    bool begun = false;
    int64_t text_offset = 0;
  };
  void send_part(size_t prompt, int64_t reply, const CompletionOutput& written, std::string text, bool last);
  void send_event(const Json& event);
  void send_whole();
  void end_stream();
  void send_error(int status, const std::string& message);
  void on_finished(int status);

  const OpenAiRequest request_;
  const ServedModel& model_;
  const std::shared_ptr<HttpTransaction> exchange_;
  const std::string id_;
  const int64_t created_;
  const Hooks hooks_;
  std::shared_ptr<const void> kept_;
  std::mutex over_mutex_;
  bool over_ = false;
  // Of the engine's thread alone:
  bool begun_ = false, any_token_ = false;
  bool ended_ = false;  // all is said, be it an error
  std::vector<Choice> choices_;
  std::vector<std::vector<CompletionOutput>> done_;
  size_t unfinished_;
  int64_t prompt_tokens_ = 0, completion_tokens_ = 0;
};

}  // namespace hone
