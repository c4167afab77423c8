// hone pairs: samples and scores completions, and writes preference pairs.
#include "posttrain/pairs.h"

#include <cstdio>

#include "cli/command.h"
#include "cli/model_arguments.h"
#include "core/base/log.h"
#include "core/io/file.h"
#include "core/io/jsonl.h"

namespace hone {
namespace {

class PairsCommand : public Command {
 public:
  std::string summary() const override { return "sample completions, score them, and write preference pairs"; }
  std::string example() const override {
    return "hone pairs configs/experiment/pairs.toml --model DIR --out pairs.jsonl num_generations=8";
  }
  void arguments(Arguments& a) override {
    a.positional("file", file_,
                 "TOML file: tasks, sampling and reward as in an rl stage, and margin and pairs_per_prompt");
    model_.arguments(a);
    a.option("out", out_, "file to write: JSON Lines of {prompt, chosen, rejected, ...}; - = standard output", true);
    a.rest("settings", settings_, "key=value that override keys of the file");
  }
  int run() override {
    const auto source = Config::from_file(file_, settings_).as<PairSource>();
    check_pairs(source);
    model_.open();
    JsonlWriter out(out_ == "-" ? out_ : expand_path(out_));
    const PairReport report = sample_pairs(model_.context(), model_.model(), model_.tokenizer(), source,
                                           [&](const Json& row) { out.write(row); });
    out.flush();
    std::fprintf(stderr, "%lld pairs of %lld prompts, mean reward %.4f\n", static_cast<long long>(report.pairs),
                 static_cast<long long>(report.prompts), report.reward);
    if (report.judged < report.replies)
      log::warning("pairs: ", report.replies - report.judged, " of ", report.replies,
                   " completions could not be scored and are in no pair");
    return 0;
  }

 private:
  ModelArguments model_;
  std::string file_, out_;
  std::vector<std::string> settings_;
};

[[maybe_unused]] const bool added = commands().add("pairs", [] { return std::unique_ptr<Command>(new PairsCommand); });

}  // namespace
}  // namespace hone
