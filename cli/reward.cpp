#include "rewards/reward.h"

#include <cstdio>

#include "cli/command.h"
#include "core/jsonl.h"

namespace hone {
namespace {

class RewardCommand : public Command {
 public:
  std::string summary() const override { return "judge completions"; }
  std::string example() const override { return "hone reward --reward math --in completions.jsonl --json"; }
  void arguments(Arguments& a) override {
    a.option("reward", spec_, "a reward's name, an inline table ({kind = 'format', ...}) or a TOML file", true);
    a.option("in", in_, "JSON Lines of {prompt, completion, answer, ...}; - is standard input", true);
    a.option("out", out_, "rows with score and note added; - is standard output");
    a.flag("json", json_, "print JSON Lines; otherwise the mean score alone");
  }
  int run() override {
    const std::shared_ptr<const Reward> reward = make_reward(spec_);
    const bool rows = json_ || !out_.empty();
    JsonlWriter out(out_.empty() ? "-" : expand_path(out_));
    double sum = 0;
    int64_t count = 0;
    read_jsonl(expand_path(in_), [&](const Json& row, int64_t line) {
      const std::string where = concat(in_, ":", line);
      const auto text = [&](const char* name) {
        const Json* member = row.find(name);
        return !member || member->is_null() ? std::string() : member->is_string() ? member->as_string() : member->dump();
      };
      Task task;
      task.id = where;
      task.prompt = text("prompt");
      task.answer = text("answer");
      task.columns = row;
      Completion completion;
      completion.text = row.at("completion", where).as_string(where);
      completion.finish_reason = row.find("finish_reason") ? text("finish_reason") : "stop";
      const Score score = reward->score(task, completion);
      sum += score.score;
      ++count;
      if (!rows) return;
      Json judged = row;
      judged.set("score", score.skipped ? Json() : Json(score.score));
      judged.set("note", score.note);
      out.write(judged);
    });
    out.flush();
    if (rows) return 0;
    HONE_CHECK(count > 0, in_, ": there are no rows to judge");
    std::printf("mean score %s over %lld rows\n", number_text(sum / static_cast<double>(count)).c_str(), static_cast<long long>(count));
    return 0;
  }

 private:
  std::string spec_, in_, out_;
  bool json_ = false;
};

[[maybe_unused]] const bool added = commands().add("reward", [] { return std::unique_ptr<Command>(new RewardCommand); });

}  // namespace
}  // namespace hone
