// hone data: generate problems, tokenize text, convert rows, find the rows of a task in training data.
#include <algorithm>
#include <cstdio>

#include "cli/command.h"
#include "core/base/log.h"
#include "core/base/suggest.h"
#include "core/config/config.h"
#include "core/io/jsonl.h"
#include "data/conversation.h"
#include "data/convert.h"
#include "eval/contamination_files.h"
#include "pretrain/corpus.h"

namespace hone {
namespace {

class DataCommand : public Command {
 public:
  std::string summary() const override {
    return "generate problems, tokenize text, convert files of rows, or find an evaluation task's rows in training "
           "data";
  }
  std::string example() const override {
    return "hone data generate --generator arithmetic digits=2 heldout=500 --split test --limit 100 --out "
           "problems.jsonl\n  hone data tokenize --in "
           "stories.jsonl --tokenizer tok --out stories.tokens\n  hone data contamination --task gsm8k --in "
           "train.jsonl "
           "--out rows.jsonl\n  hone data convert openai/gsm8k:main:test --to test.jsonl.zst\n  hone data convert "
           "sharegpt.json --to train.parquet --format openai";
  }
  std::vector<std::pair<std::string, std::string>> old_arguments() const override {
    return {{"overlap", "contamination"}};
  }
  void arguments(Arguments& a) override {
    a.choice("action", action_, {"generate", "tokenize", "contamination", "convert"},
             "what to do: generate | tokenize | contamination | convert");
    a.option("generator", generator_, "generate: name of the generator (hone list generators)");
    a.rest("settings", settings_,
           "generate: key=value settings of the generator; convert: files of rows, or dataset folders (FOLDER:SPLIT)");
    a.option("split", split_, "generate: train | test; convert: split of dataset folders");
    a.option("limit", limit_, "generate: maximum number of problems; 0 = all");
    a.option("to", to_,
             "convert: file to write; its name says the container: .jsonl, .json, .csv, .tsv or .parquet, also with "
             ".gz or .zst");
    a.option(
        "format", format_,
        "convert: form of conversations: openai | sharegpt | alpaca | prompt_completion; empty = rows as they are");
    a.option("rows", rows_, "convert: number of rows to write; 0 = all");
    a.options(
        "in", inputs_,
        "tokenize, contamination: file of rows or plain text; contamination also reads token files (may be repeated)");
    a.option("text-key", text_key_,
             "tokenize, contamination: column of the text in a file of rows; contamination reads all strings of a row "
             "without it");
    a.option("tokenizer", tokenizer_,
             "tokenize, contamination: tokenizer folder or file; contamination needs it for token files only");
    a.option("task", task_, "contamination: name or TOML file of the evaluation task");
    a.option("ngram", ngram_, "contamination: number of consecutive words that count as an overlap");
    a.option("out", out_,
             "file to write; generate: - or empty = standard output; contamination: the rows that overlap, empty = "
             "summary only");
  }
  int run() override {
    if (action_ == "generate") return generate();
    if (action_ == "tokenize") return tokenize();
    return action_ == "convert" ? convert() : overlap();
  }

 private:
  int generate() {
    require_usage(!generator_.empty(),
                  "data generate: --generator is missing; known generators: ", join(generators().names()));
    require_usage(split_ == "train" || split_ == "test", "data generate: --split is '", split_,
                  "'; it must be train or test");
    require_usage(limit_ >= 0, "data generate: --limit is ", limit_, "; it must be 0 or more");
    GeneratorSpec spec;
    settings_.insert(settings_.begin(), "kind=" + generator_);
    Config::from_text("", "command line", settings_).read([&](Fields& f) { spec.fields(f); });
    const int64_t all = spec.generator->size(split_), count = limit_ > 0 ? std::min(limit_, all) : all;
    JsonlWriter out(out_.empty() ? "-" : expand_path(out_));
    for (int64_t i = 0; i < count; ++i) out.write(spec.generator->example(split_, i).row());
    out.flush();
    return 0;
  }
  int tokenize() {
    require_usage(!inputs_.empty() && !tokenizer_.empty() && !out_.empty(),
                  "data tokenize: give --in, --tokenizer and --out");
    std::vector<std::string> paths;
    for (const std::string& input : inputs_) paths.push_back(expand_path(input));
    const TokenizeReport report =
        write_token_file(expand_path(out_), paths, text_key_, Tokenizer::load(expand_path(tokenizer_)));
    std::printf("%s\n",
                Json(JsonObject{{"documents", report.documents}, {"tokens", report.tokens}, {"bytes", report.bytes}})
                    .dump()
                    .c_str());
    return 0;
  }
  int overlap() {
    require_usage(!inputs_.empty() && !task_.empty(), "data contamination: give --task and --in");
    require_usage(ngram_ >= 1 && ngram_ <= 1024, "data contamination: --ngram is ", ngram_,
                  "; it must be in [1, 1024]");
    std::vector<std::string> paths;
    for (const std::string& input : inputs_) paths.push_back(expand_path(input));
    std::optional<Tokenizer> tokenizer;
    if (!tokenizer_.empty()) tokenizer = Tokenizer::load(expand_path(tokenizer_));
    const Contamination found =
        find_overlaps(load_eval_task(task_), paths, text_key_, tokenizer ? &*tokenizer : nullptr, ngram_);
    if (!out_.empty()) {
      JsonlWriter out(expand_path(out_));
      for (const Contamination::Row& row : found.rows())
        if (row.num_covered > 0) out.write(row.to_json());
      out.flush();
    }
    std::printf("%s\n", found.summary().dump().c_str());
    return 0;
  }
  int convert() {
    require_usage(!settings_.empty() && !to_.empty(), "data convert: give the files to read, and --to");
    require_usage(rows_ >= 0, "data convert: --rows is ", rows_, "; it must be 0 or more");
    const std::vector<std::string>& known = conversation_formats();
    require_usage(format_.empty() || std::ranges::find(known, format_) != known.end(), "data convert: --format is '",
                  format_, "'", suggestion(format_, known), "; known: ", join(known));
    const int64_t count =
        convert_rows({.inputs = settings_, .output = to_, .format = format_, .split = split_, .limit = rows_});
    log::info("data convert: ", count, " rows");
    return 0;
  }
  std::string to_, format_;
  int64_t rows_ = 0;
  std::string action_, generator_, split_ = "train", text_key_ = "text", tokenizer_, task_, out_;
  int64_t ngram_ = 13;
  std::vector<std::string> settings_, inputs_;
  int64_t limit_ = 0;
};

[[maybe_unused]] const bool added = commands().add("data", [] { return std::unique_ptr<Command>(new DataCommand); });

}  // namespace
}  // namespace hone
