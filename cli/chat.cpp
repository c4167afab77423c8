// hone chat: a conversation with a model in the terminal.
#include "core/text/chat.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "cli/command.h"
#include "cli/model_arguments.h"

namespace hone {
namespace {

class ChatCommand : public Command {
 public:
  std::string summary() const override { return "chat with a model in the terminal; an empty line ends"; }
  std::string example() const override { return "hone chat --model DIR --system 'You are brief.'"; }
  std::vector<std::pair<std::string, std::string>> old_arguments() const override {
    return {{"--format", "--chat-format"}};
  }
  void arguments(Arguments& a) override {
    model_.arguments(a);
    a.option("system", system_, "system message; empty = none");
    a.option("chat-format", format_,
             "chat format: auto (the model's own) | template | a built-in name (hone list chat-templates)");
    model_.chat_arguments(a);
    sampling_arguments(a, sampling_);
  }

  // Keeps the conversation as ids: the model's messages are never tokenized again.
  int run() override {
    check_options([&](Fields& f) { sampling_.fields(f); });
    model_.open();
    const Tokenizer& tokenizer = model_.tokenizer();
    const ChatFormat format = ChatFormat::make(format_, tokenizer);
    for (const int32_t id : format.stop_ids(tokenizer)) sampling_.stop_ids.push_back(id);
    Engine engine(model_.context(), model_.model(), &tokenizer, {});
    std::vector<Message> history;
    if (!system_.empty()) history.push_back({"system", system_, {}});
    std::vector<int32_t> ids;
    std::string line;
    for (uint64_t turn = 0; std::printf("> "), std::fflush(stdout), std::getline(std::cin, line) && !line.empty();
         ++turn) {
      std::vector<Message> shown = history;
      shown.push_back({"user", line, {}});
      const std::vector<int32_t> prompt = extend(format, tokenizer, history, shown, ids);
      CompletionOutput completion = generate(engine, tokenizer, {prompt, 1, turn, sampling_});
      HONE_CHECK(!completion.failed, completion.finish_reason);
      ids = prompt;
      ids.insert(ids.end(), completion.ids.begin(), completion.ids.end());
      history = std::move(shown);
      history.push_back({"assistant", completion.text, {}});
    }
    std::printf("\n");
    return 0;
  }

 private:
  // Returns the ids so far, extended by the format's text after the last assistant message. Encodes the whole
  // conversation again if that message was cut off, or the format now renders it differently (Qwen3 drops the thinking
  // of earlier turns).
  static std::vector<int32_t> extend(const ChatFormat& format, const Tokenizer& tokenizer,
                                     const std::vector<Message>& history, const std::vector<Message>& shown,
                                     const std::vector<int32_t>& ids) {
    const std::vector<int32_t> ends = tokenizer.stop_ids(), format_ends = format.stop_ids(tokenizer);
    const auto is_end = [&](int32_t id) {
      return std::ranges::find(ends, id) != ends.end() || std::ranges::find(format_ends, id) != format_ends.end();
    };
    const std::string before = ids.empty() || !is_end(ids.back()) ? "" : text_up_to_last_completion(format, history);
    std::string after;
    for (const ChatPiece& piece : format.render(shown, true)) after += piece.text;
    if (before.empty() || !after.starts_with(before)) return format.encode(tokenizer, shown, true).ids;
    std::vector<int32_t> out = ids;
    const std::vector<int32_t> added = tokenizer.encode(after.substr(before.size()), true, false);
    out.insert(out.end(), added.begin(), added.end());
    return out;
  }

  // The conversation's text up to the end of its last assistant message; "" if the template does not mark that text.
  static std::string text_up_to_last_completion(const ChatFormat& format, const std::vector<Message>& history) {
    std::string out, text;
    try {
      for (const ChatPiece& piece : format.render(history, false, history.size() - 1)) {
        text += piece.text;
        if (piece.assistant) out = text;
      }
    } catch (const Error&) {  // extend() then encodes the whole conversation
      return "";
    }
    return out;
  }

  static CompletionOutput generate(Engine& engine, const Tokenizer& tokenizer, GenerationRequest request) {
    CompletionOutput out;
    engine.submit(
        std::move(request),
        [&](uint64_t, std::vector<CompletionOutput> completions) { out = std::move(completions.front()); },
        [&](uint64_t, int64_t, const CompletionOutput& completion) {
          const int32_t id = completion.ids.back();
          if (tokenizer.is_special(id)) return;
          std::fputs(tokenizer.token_bytes(id).c_str(), stdout);
          std::fflush(stdout);
        });
    while (engine.step()) {}
    std::printf("\n");
    return out;
  }

  ModelArguments model_;
  SamplingParams sampling_{.max_tokens = 512, .stop = {}, .stop_ids = {}};
  std::string system_, format_ = "auto";
};

[[maybe_unused]] const bool added = commands().add("chat", [] { return std::unique_ptr<Command>(new ChatCommand); });

}  // namespace
}  // namespace hone
