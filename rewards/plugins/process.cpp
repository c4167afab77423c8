#include "rewards/plugins/process.h"

#include "core/io/file.h"

namespace hone {

void ProcessReward::shared_fields(Fields& f) {
  f("start_timeout", start_timeout_, "seconds until a process must have answered its first line");
  calls_.fields(f);
  f.require("start_timeout", start_timeout_ > 0 && start_timeout_ <= 86400, "start_timeout must be in (0, 86400]");
}

void ProcessReward::fields(Fields& f) {
  f("command", command_, "program and arguments; ${NAME} is replaced by an environment variable");
  f("options", options_, "JSON text sent to the program in the first line");
  shared_fields(f);
}

ProcessCommand ProcessReward::command() const {
  HONE_CHECK(!command_.empty(), "command is empty; set the program and its arguments");
  ProcessCommand out;
  for (const std::string& word : command_) out.command.push_back(expand_path(word));
  if (!options_.empty()) out.options = parse_json(options_, "options");
  out.shown_as = out.command[0];
  return out;
}

void ProcessReward::prepare() {
  ProcessCommand started = command();
  started.workers = calls_.workers;
  started.start_timeout = start_timeout_;
  pool_ = std::make_unique<ProcessPool>(std::move(started));
}

RewardScore ProcessReward::score(const Task& task, const Completion& completion) const {
  RewardScore out;
  score_group(task, {&completion, 1}, {&out, 1});
  return out;
}

void ProcessReward::check(const RewardTrial& trial) const { pool_->check(trial_options(trial)); }

void ProcessReward::score_group(const Task& task, std::span<const Completion> completions,
                                std::span<RewardScore> scores) const {
  calls_.score(scores, [&](size_t begin, std::span<RewardScore> some) {
    pool_->score(task, completions.subspan(begin, some.size()), some, calls_.timeout);
  });
}

[[maybe_unused]] static const bool added =
    rewards().add("process", [] { return std::unique_ptr<Reward>(new ProcessReward); });

}  // namespace hone
