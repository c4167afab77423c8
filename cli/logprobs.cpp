// hone logprobs: the log-probs of given texts.
#include "cli/command.h"
#include "cli/ids.h"
#include "cli/model_arguments.h"
#include "core/io/jsonl.h"
#include "core/io/rows/rows.h"
#include "core/text/tokenizer/pieces.h"
#include "model/token_logprobs.h"

namespace hone {
namespace {

class LogprobsCommand : public Command {
 public:
  std::string summary() const override { return "compute the log-probs of given texts"; }
  std::string example() const override { return "hone logprobs --model DIR --in texts.jsonl --out scored.jsonl"; }
  std::string old_name() const override { return "score"; }
  void arguments(Arguments& a) override {
    model_.arguments(a);
    a.option("in", in_, "texts: file of rows {text}, {prompt, completion} or {ids}; - = standard input", true);
    a.option("out", out_, "file to write: the rows with ids, logp, entropy and nll; - = standard output");
    a.option("temperature", options_.temperature, "softmax temperature; must be positive");
  }
  int run() override {
    require_usage(options_.temperature > 0, "logprobs: --temperature is ", options_.temperature,
                  "; it must be positive");
    model_.open();
    options_.entropy = true;
    JsonlWriter out(expand_path(out_));
    std::vector<Json> rows;
    std::vector<std::vector<int32_t>> sequences;
    std::vector<size_t> prompt_lengths;
    int64_t tokens = 0;
    const auto flush = [&] {
      const std::vector<TokenLogprobs> logprobs =
          compute_logprobs(model_.context(), model_.model(), sequences, options_);
      for (size_t i = 0; i < rows.size(); ++i)
        out.write(row_with_logprobs(std::move(rows[i]), sequences[i], prompt_lengths[i], logprobs[i]));
      rows.clear();
      sequences.clear();
      prompt_lengths.clear();
      tokens = 0;
    };
    each_row(in_, [&](const Json& row, const std::string& where) {
      auto [ids, prompt_length] = ids_of(row, where);
      HONE_CHECK(!ids.empty(), where, ": the text has no tokens");
      HONE_CHECK(static_cast<int64_t>(ids.size()) <= model_.model().shape().max_positions, where, ": ", ids.size(),
                 " tokens; the model takes ", model_.model().shape().max_positions);
      tokens += static_cast<int64_t>(ids.size());
      rows.push_back(row);
      sequences.push_back(std::move(ids));
      prompt_lengths.push_back(prompt_length);
      if (tokens >= 65536) flush();
    });
    flush();
    out.flush();
    return 0;
  }

 private:
  std::pair<std::vector<int32_t>, size_t> ids_of(const Json& row, const std::string& where) const {
    if (const Json* ids = row.find("ids")) return {parse_ids(*ids, model_.model().shape().vocab_size, where), 1};
    if (const Json* text = row.find("text")) return {model_.tokenizer().encode_document(text->as_string(where)), 1};
    const std::string& prompt = row.at("prompt", where).as_string(where);
    const std::string& completion = row.at("completion", where).as_string(where);
    PromptWithCompletion encoded = encode_completion(prompt, completion, model_.tokenizer());
    return {std::move(encoded.ids), encoded.prompt_length};
  }
  // nll is the sum over the tokens after the prompt, or after the first token if there is no prompt. The first token
  // has no log-prob: null.
  static Json row_with_logprobs(Json row, const std::vector<int32_t>& ids, size_t prompt_length,
                                const TokenLogprobs& logprobs) {
    double nll = 0;
    for (size_t t = std::max<size_t>(prompt_length, 1); t < ids.size(); ++t) nll -= logprobs.logp[t];
    JsonArray logp = Json::array(logprobs.logp).as_array(), entropy = Json::array(logprobs.entropy).as_array();
    logp[0] = Json();
    entropy[0] = Json();
    row.set("ids", Json::array(ids));
    row.set("logp", std::move(logp));
    row.set("entropy", std::move(entropy));
    row.set("nll", nll);
    return row;
  }
  ModelArguments model_;
  LogprobOptions options_;
  std::string in_, out_ = "-";
};

[[maybe_unused]] const bool added =
    commands().add("logprobs", [] { return std::unique_ptr<Command>(new LogprobsCommand); });

}  // namespace
}  // namespace hone
