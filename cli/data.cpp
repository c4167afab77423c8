#include <cstdio>

#include "cli/command.h"
#include "core/config.h"
#include "core/jsonl.h"
#include "posttrain/corpus.h"

namespace hone {
namespace {

class DataCommand : public Command {
 public:
  std::string summary() const override { return "draw problems from a generator, or turn text into a token file"; }
  std::string example() const override {
    return "hone data generate --generator arithmetic digits=2 heldout=500 --split test --limit 100 --out problems.jsonl\n  hone data tokenize --in "
           "stories.jsonl --tokenizer tok --out stories.tokens";
  }
  void arguments(Arguments& a) override {
    a.choice("action", action_, {"generate", "tokenize"}, "generate | tokenize");
    a.option("generator", generator_, "which generator (hone list generators)");
    a.rest("settings", settings_, "key=value of the generator");
    a.option("split", split_, "train | test");
    a.option("limit", limit_, "problems; 0 = all");
    a.options("in", inputs_, "text: .jsonl or plain (may be repeated)");
    a.option("text-key", text_key_, "member of a JSON Lines row that holds the text");
    a.option("tokenizer", tokenizer_, "tokenizer folder or file");
    a.option("out", out_, "what is written; - is standard output (generate)");
  }
  int run() override { return action_ == "generate" ? generate() : tokenize(); }

 private:
  int generate() {
    require_usage(!generator_.empty(), "data generate: name one with --generator; known: ", join(generators().names()));
    require_usage(split_ == "train" || split_ == "test", "data generate: --split is train or test, not ", split_);
    require_usage(limit_ >= 0, "data generate: --limit must be 0 or more");
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
    require_usage(!inputs_.empty() && !tokenizer_.empty() && !out_.empty(), "data tokenize: needs --in, --tokenizer and --out");
    std::vector<std::string> paths;
    for (const std::string& input : inputs_) paths.push_back(expand_path(input));
    const TokenizeReport report = write_token_file(expand_path(out_), paths, text_key_, Tokenizer::load(expand_path(tokenizer_)));
    std::printf("%s\n", Json(JsonObject{{"documents", report.documents}, {"tokens", report.tokens}, {"bytes", report.bytes}}).dump().c_str());
    return 0;
  }
  std::string action_, generator_, split_ = "train", text_key_ = "text", tokenizer_, out_;
  std::vector<std::string> settings_, inputs_;
  int64_t limit_ = 0;
};

[[maybe_unused]] const bool added = commands().add("data", [] { return std::unique_ptr<Command>(new DataCommand); });

}  // namespace
}  // namespace hone
