// hone generate: completions of prompts from the command line or a file.
#include <cstdio>
#include <optional>

#include "cli/command.h"
#include "cli/ids.h"
#include "cli/model_arguments.h"
#include "core/base/format.h"
#include "core/io/jsonl.h"
#include "core/io/rows/rows.h"
#include "data/conversation.h"
#include "data/prompt.h"

namespace hone {
namespace {

class GenerateCommand : public Command {
 public:
  std::string summary() const override { return "generate completions of prompts"; }
  std::string example() const override {
    return "hone generate --model runs/quickstart/checkpoints/grpo/step-150 --prompt '47+85' --logprobs --json";
  }
  void arguments(Arguments& a) override {
    model_.arguments(a);
    a.option("prompt", prompt_, "text of one prompt");
    a.option("prompts", prompts_,
             "file of rows with several prompts: {prompt}, {messages} or {ids}, with tools and "
             "chat_template_kwargs of their chat; - = standard input");
    a.flag("apply-chat-template", chat_, "a prompt is a user's message in the model's chat format");
    a.option("system", format_.system, "system message of prompts in a chat format; empty = none");
    model_.chat_arguments(a);
    sampling_arguments(a, sampling_);
    structured_arguments(a, sampling_.structured);
    speculative_arguments(a, engine_.speculative);
    quantization_arguments(a, engine_);
    a.flag("ignore-eos", sampling_.ignore_eos, "do not stop at the end-of-sequence token");
    a.flag("logprobs", logprobs_, "print JSON Lines with the log-prob of each token");
    a.flag("json", json_, "print JSON Lines {prompt_ids, ids, text, finish_reason}");
  }
  int run() override {
    read_structured_files(sampling_.structured);
    check_options([&](Fields& f) {
      sampling_.fields(f);
      engine_.fields(f);
    });
    require_usage(prompt_.empty() != prompts_.empty(), "generate: give either --prompt or --prompts");
    if (chat_ || !model_.chat_settings().chat_template.empty()) format_.chat = "auto";
    require_usage(format_.system.empty() || format_.is_chat(), "generate: --system needs --apply-chat-template");
    model_.open();
    std::vector<GenerationRequest> requests = read_requests();
    std::vector<std::vector<int32_t>> prompts;
    prompts.reserve(requests.size());
    for (const GenerationRequest& request : requests) prompts.push_back(request.prompt);
    engine_.owns_model = true;
    Engine engine(model_.context(), model_.model(), model_.has_tokenizer() ? &model_.tokenizer() : nullptr, engine_);
    const std::vector<std::vector<CompletionOutput>> completions = engine.generate(std::move(requests));
    JsonlWriter out("-");
    int failed = 0;
    for (size_t i = 0; i < completions.size(); ++i) {
      const CompletionOutput& completion = completions[i].front();
      failed += completion.failed;
      if (completion.failed && !json_)
        std::fprintf(stderr, "hone: prompt %zu: %s\n", i, printable(completion.finish_reason).c_str());
      if (json_ || logprobs_)
        out.write(row_of(prompts[i], completion));
      else
        std::printf("%s\n", completion.text.c_str());
    }
    out.flush();
    return failed > 0 ? 1 : 0;
  }

 private:
  std::vector<GenerationRequest> read_requests() const {
    std::vector<GenerationRequest> out;
    const auto add = [&](std::vector<int32_t> ids, const std::vector<int32_t>& stop_ids) {
      out.push_back({std::move(ids), 1, out.size(), sampling_});
      for (const int32_t id : stop_ids) out.back().sampling.stop_ids.push_back(id);
    };
    std::optional<PromptEncoder> encoder;
    const auto add_task = [&](const Task& task) {
      if (!encoder) encoder.emplace(format_, model_.tokenizer());
      add(encoder->prompt(task), encoder->stop_ids(task));
    };
    if (!prompt_.empty()) add_task({.id = "--prompt", .prompt = prompt_, .messages = {}, .answer = {}, .columns = {}});
    if (prompts_.empty()) return out;
    each_row(prompts_, [&](const Json& given, const std::string& where) {
      if (const Json* ids = given.find("ids"))
        return add(parse_ids(*ids, model_.model().shape().vocab_size, where), {});
      const Json row = with_conversation(given, {}, where);
      Task task{.id = where, .prompt = {}, .messages = {}, .answer = {}, .columns = row};
      const Json *messages = row.find("messages"), *prompt = messages ? messages : &row.at("prompt", where);
      if (prompt->is_array())
        task.messages = prompt_of(parse_messages(*prompt, where));
      else
        task.prompt = prompt->as_string(where);
      add_task(task);
    });
    return out;
  }
  Json row_of(const std::vector<int32_t>& prompt, const CompletionOutput& completion) const {
    Json row = JsonObject{{"prompt_ids", Json::array(prompt)},
                          {"ids", Json::array(completion.ids)},
                          {"text", completion.text},
                          {"finish_reason", completion.finish_reason}};
    if (logprobs_) row.set("logp", Json::array(completion.logp));
    return row;
  }
  ModelArguments model_;
  SamplingParams sampling_;
  EngineConfig engine_;
  PromptFormat format_;
  std::string prompt_, prompts_;
  bool chat_ = false, logprobs_ = false, json_ = false;
};

[[maybe_unused]] const bool added =
    commands().add("generate", [] { return std::unique_ptr<Command>(new GenerateCommand); });

}  // namespace
}  // namespace hone
