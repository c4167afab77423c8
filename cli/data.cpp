// hone data: show what a recipe trains on, generate problems, tokenize text, convert rows, find the rows of a task in
// training data.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <span>

#include "cli/command.h"
#include "core/base/log.h"
#include "core/base/suggest.h"
#include "core/config/config.h"
#include "core/io/jsonl.h"
#include "data/conversation.h"
#include "data/convert.h"
#include "eval/contamination_files.h"
#include "pretrain/corpus.h"
#include "run/show_data.h"

namespace hone {
namespace {

class DataCommand : public Command {
 public:
  std::string summary() const override {
    return "show what a recipe trains on, generate problems, tokenize text, convert files of rows, or find an "
           "evaluation task's rows in training data";
  }
  std::string example() const override {
    return "hone data show configs/sft.toml --rows 2\n  hone data generate --generator arithmetic digits=2 heldout=500 "
           "--split test --limit 100 --out "
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
    a.choice("action", action_, {"show", "generate", "tokenize", "contamination", "convert"},
             "what to do: show | generate | tokenize | contamination | convert");
    a.option("generator", generator_, "generate: name of the generator (hone list generators)");
    a.rest("settings", settings_,
           "show: the recipe, then key=value overrides; generate: key=value settings of the generator; convert: files "
           "of rows, or dataset folders (FOLDER:SPLIT)");
    a.option("stage", show_.stage, "show: name of the stage; empty = all stages that train");
    a.flag("ids", style_.ids, "show: print each token with its id");
    a.option("color", color_, "show: always | never | auto (on a terminal)");
    a.flag("json", json_, "show: print one JSON object per sample");
    a.option("split", split_, "generate: train | test; convert: split of dataset folders");
    a.option("limit", limit_, "generate: maximum number of problems; 0 = all");
    a.option("to", to_,
             "convert: file to write; its name says the container: .jsonl, .json, .csv, .tsv or .parquet, also with "
             ".gz or .zst");
    a.option(
        "format", format_,
        "convert: form of conversations: openai | sharegpt | alpaca | prompt_completion; empty = rows as they are");
    a.option("rows", rows_, "show: number of rows of each stage; 0 = 3. convert: number of rows to write; 0 = all");
    a.options(
        "in", inputs_,
        "tokenize, contamination: file of rows or plain text; contamination also reads token files (may be repeated)");
    a.option("text-key", text_key_,
             "tokenize, contamination: column of the text in a file of rows; contamination reads all strings of a row "
             "without it");
    a.option("tokenizer", tokenizer_,
             "tokenize, contamination, show: tokenizer folder or file; contamination needs it for token files only, "
             "show if an earlier stage trains it");
    a.option("task", task_, "contamination: name or TOML file of the evaluation task");
    a.option("ngram", ngram_, "contamination: number of consecutive words that count as an overlap");
    a.option("out", out_,
             "file to write; generate: - or empty = standard output; contamination: the rows that overlap, empty = "
             "summary only");
  }
  int run() override {
    if (action_ == "show") return show();
    if (action_ == "generate") return generate();
    if (action_ == "tokenize") return tokenize();
    return action_ == "convert" ? convert() : overlap();
  }

 private:
  int show() {
    require_usage(!settings_.empty(), "data show: give a recipe");
    require_usage(rows_ >= 0 && rows_ <= 100000, "data show: --rows is ", rows_, "; it must be in [0, 100000]");
    if (rows_ > 0) show_.rows = rows_;
    require_usage(color_ == "always" || color_ == "never" || color_ == "auto", "data show: --color is '", color_,
                  "'; it must be always, never or auto");
    style_.color = color_ == "always" || (color_ == "auto" && ::isatty(STDOUT_FILENO) == 1);
    show_.tokenizer = tokenizer_;
    const Recipe recipe = read_recipe(expand_path(settings_.front()), std::span(settings_).subspan(1));
    std::optional<Tokenizer> tokenizer;
    const std::vector<ShownStage> stages = show_data(recipe, show_, tokenizer);
    if (!json_) std::printf("%s", shown_legend(style_).c_str());
    for (const ShownStage& stage : stages) {
      if (!json_) std::printf("\nstage %s (%s)\n", stage.name.c_str(), stage.kind.c_str());
      for (const ShownSample& shown : stage.samples)
        std::printf("%s\n", json_ ? shown_json(stage.name, shown, *tokenizer).dump().c_str()
                                  : shown_text(shown, *tokenizer, style_).c_str());
    }
    return 0;
  }
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
  std::string color_ = "auto";
  ShowOptions show_;
  ShowStyle style_;
  bool json_ = false;
  int64_t ngram_ = 13;
  std::vector<std::string> settings_, inputs_;
  int64_t limit_ = 0;
};

[[maybe_unused]] const bool added = commands().add("data", [] { return std::unique_ptr<Command>(new DataCommand); });

}  // namespace
}  // namespace hone
