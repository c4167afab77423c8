// hone logprobs: the log-probs of given texts, and the most likely tokens at each place.
#include <algorithm>
#include <optional>

#include "cli/command.h"
#include "cli/ids.h"
#include "cli/model_arguments.h"
#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "core/io/rows/rows.h"
#include "core/text/tokenizer/pieces.h"
#include "data/dataset.h"
#include "model/token_logprobs.h"
#include "posttrain/teacher/prompt_logprobs_api.h"
#include "train/teacher.h"

namespace hone {
namespace {

// The rows that are computed together.
struct LogprobRows {
  std::vector<Json> rows;
  std::vector<std::vector<int32_t>> ids;
  std::vector<size_t> prompt_lengths;
  int64_t num_tokens = 0;
};

// nll is the sum over the tokens after the prompt, or after the first token if there is no prompt. The first token has
// no log-prob: null.
void set_logprobs(Json& row, const std::vector<int32_t>& ids, size_t prompt_length, const TokenLogprobs& logprobs) {
  double nll = 0;
  for (size_t t = std::max<size_t>(prompt_length, 1); t < ids.size(); ++t) nll -= logprobs.logp[t];
  row.set("ids", Json::array(ids));
  const auto set = [&](const char* name, const std::vector<float>& values) {
    if (values.empty()) return;
    JsonArray array = Json::array(values).as_array();
    array[0] = Json();
    row.set(name, std::move(array));
  };
  set("logp", logprobs.logp);
  set("entropy", logprobs.entropy);
  row.set("nll", nll);
}

class LogprobsCommand : public Command {
 public:
  std::string summary() const override { return "compute the log-probs of given texts"; }
  std::string example() const override {
    return "hone logprobs --model DIR --in texts.jsonl --out scored.jsonl\n  hone logprobs --model DIR --in sft.jsonl "
           "--top-logprobs 20 --out teacher.jsonl\n  hone logprobs --base-url http://localhost:8000/v1 --model NAME "
           "--tokenizer DIR --in sft.jsonl --top-logprobs 20 --out teacher.jsonl";
  }
  std::string old_name() const override { return "score"; }
  void arguments(Arguments& a) override {
    model_.arguments(a, false);
    model_.chat_arguments(a);
    a.option("in", in_, "texts: file of rows {text}, {prompt, completion}, {messages} or {ids}; - = standard input",
             true);
    a.option("out", out_, "file to write: the rows with ids, logp, entropy and nll; - = standard output");
    a.option("temperature", options_.temperature, "softmax temperature; must be positive");
    a.option("top-logprobs", top_,
             "number of most likely tokens to add for each token, as top_ids and top_logp, for distillation (objective "
             "distill with loss = 'top_k'). Rows become tokens as in stage sft, with the token that ends a completion; "
             "0 = none, at most 64");
    a.flag("apply-chat-template", chat_, "a prompt is a user's message in the model's chat format");
    a.option("base-url", endpoint_.base_url,
             "ask a model of an OpenAI-compatible server (http://localhost:8000/v1); --model is its name there");
    a.option("tokenizer", tokenizer_folder_, "with --base-url: folder with the model's tokenizer");
    a.option("api", endpoint_.api, "with --base-url: auto | vllm (prompt_logprobs) | echo (echo and logprobs)");
    a.option("api-key-env", endpoint_.api_key_env, "name of the environment variable with the server's API key");
    a.option("concurrency", endpoint_.concurrency, "requests to the server at the same time");
    a.option("max-retries", endpoint_.max_retries,
             "further attempts of a request after status 408, 429 or 5xx, a timeout or a broken response");
    a.option("request-timeout", endpoint_.request_timeout, "seconds of one attempt");
  }
  int run() override {
    check_arguments();
    open();
    JsonlWriter out(expand_path(out_));
    LogprobRows part;
    const auto flush = [&] {
      if (part.rows.empty()) return;
      compute(part);
      for (const Json& row : part.rows) out.write(row);
      part = {};
    };
    each_row(in_, [&](const Json& row, const std::string& where) {
      auto [ids, prompt_length] = ids_of(with_conversation(row, {}, where), where);
      HONE_CHECK(!ids.empty(), where, ": the text has no tokens");
      if (!api_)
        HONE_CHECK(std::ssize(ids) <= model_.model().shape().max_positions, where, ": ", ids.size(),
                   " tokens; the model takes ", model_.model().shape().max_positions);
      part.num_tokens += std::ssize(ids);
      part.rows.push_back(row);
      part.ids.push_back(std::move(ids));
      part.prompt_lengths.push_back(prompt_length);
      if (part.num_tokens >= 65536) flush();
    });
    flush();
    out.flush();
    return 0;
  }

 private:
  void check_arguments() const {
    require_usage(options_.temperature > 0, "logprobs: --temperature is ", options_.temperature,
                  "; it must be positive");
    require_usage(top_ >= 0 && top_ <= max_teacher_top, "logprobs: --top-logprobs is ", top_, "; it must be in [0, ",
                  max_teacher_top, "]");
    require_usage(options_.temperature == 1 || (top_ == 0 && endpoint_.base_url.empty()),
                  "logprobs: --top-logprobs and --base-url need --temperature 1");
    require_usage(endpoint_.base_url.empty() == tokenizer_folder_.empty(),
                  "logprobs: --base-url and --tokenizer are given together");
    require_usage(!model_.folder().empty(),
                  "--model is missing: give a model folder or a .gguf file, or with "
                  "--base-url the model's name");
  }

  void open() {
    if (endpoint_.base_url.empty()) {
      model_.open();
      if (model_.has_tokenizer()) tokenizer_ = &model_.tokenizer();
    } else {
      endpoint_.model = model_.folder();
      check_options([&](Fields& f) { endpoint_.fields(f); });
      own_tokenizer_ = model_.chat_settings().with_settings(Tokenizer::load(expand_path(tokenizer_folder_)));
      tokenizer_ = &*own_tokenizer_;
      api_.emplace(endpoint_, *tokenizer_);
    }
    if (chat_ || !model_.chat_settings().chat_template.empty()) format_.format.chat = "auto";
    if (top_ > 0 && tokenizer_) builder_.emplace(format_, *tokenizer_);
    options_.entropy = !api_;
  }
  const Tokenizer& tokenizer() const { return tokenizer_ ? *tokenizer_ : model_.tokenizer(); }

  // Ids, and how many of them are the prompt.
  std::pair<std::vector<int32_t>, size_t> ids_of(const Json& row, const std::string& where) {
    if (const Json* ids = row.find("ids")) {
      const int64_t vocab_size = api_ ? tokenizer().vocab_size() : model_.model().shape().vocab_size;
      return {parse_ids(*ids, vocab_size, where), 1};
    }
    if (const Json* text = row.find("text")) return {tokenizer().encode_document(text->as_string(where)), 1};
    const Json* const messages = row.find("messages");
    if (builder_ || messages || format_.format.is_chat()) return ids_of_sample(row, messages, where);
    const std::string& prompt = row.at("prompt", where).as_string(where);
    const std::string& completion = row.at("completion", where).as_string(where);
    PromptWithCompletion encoded = encode_completion(prompt, completion, tokenizer());
    return {std::move(encoded.ids), encoded.prompt_length};
  }

  // As stage sft makes them.
  std::pair<std::vector<int32_t>, size_t> ids_of_sample(const Json& row, const Json* messages,
                                                        const std::string& where) {
    if (!builder_) builder_.emplace(format_, tokenizer());
    Sample sample = messages ? builder_->conversation(parse_messages(*messages, where), true, row, where)
                             : builder_->prompt_completion(fill_text("{prompt}", row, where),
                                                           fill_text("{completion}", row, where), row, where);
    const std::span<const float> mask = sample.columns.find(columns::mask);
    const auto first = std::ranges::find_if(mask, [](float m) { return m != 0; }) - mask.begin();
    return {std::move(sample.tokens), static_cast<size_t>(first)};
  }

  void compute(LogprobRows& part) {
    std::vector<TokenLogprobs> logprobs;
    std::vector<TopLogprobs> top;
    if (api_) {
      for (ServedLogprobs& one : api_->logprobs(part.ids, top_)) {
        logprobs.push_back({.logp = std::move(one.logp)});
        top.push_back(std::move(one.top));
      }
    } else {
      logprobs = compute_logprobs(model_.context(), model_.model(), part.ids, options_);
      if (top_ > 0) top = compute_top_logprobs(model_.context(), model_.model(), part.ids, top_);
    }
    for (size_t i = 0; i < part.rows.size(); ++i) {
      set_logprobs(part.rows[i], part.ids[i], part.prompt_lengths[i], logprobs[i]);
      if (top_ > 0) write_top_logprobs(part.rows[i], top[i]);
    }
  }

  ModelArguments model_;
  LogprobOptions options_;
  TeacherEndpoint endpoint_;
  SampleFormat format_;
  std::string in_, out_ = "-", tokenizer_folder_;
  int64_t top_ = 0;
  bool chat_ = false;
  std::optional<Tokenizer> own_tokenizer_;  // with a server
  const Tokenizer* tokenizer_ = nullptr;    // null: the model has none
  std::optional<SampleBuilder> builder_;
  std::optional<PromptLogprobsApi> api_;
};

[[maybe_unused]] const bool added =
    commands().add("logprobs", [] { return std::unique_ptr<Command>(new LogprobsCommand); });

}  // namespace
}  // namespace hone
