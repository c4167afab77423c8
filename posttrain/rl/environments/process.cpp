#include "posttrain/rl/environments/process.h"

#include "core/io/file.h"

namespace hone {

void ProcessEnvironments::shared_fields(Fields& f) {
  f("start_timeout", start_timeout_, "seconds until a process must have answered its first line");
  f.require("start_timeout", start_timeout_ > 0 && start_timeout_ <= 86400, "start_timeout must be in (0, 86400]");
}

void ProcessEnvironments::fields(Fields& f) {
  f("command", command_, "program and arguments; ${NAME} is replaced by an environment variable");
  f("options", options_, "JSON text sent to the program in the first line");
  shared_fields(f);
}

LineEnvironmentCommand ProcessEnvironments::command() const {
  HONE_CHECK(!command_.empty(), "command is empty; set the program and its arguments");
  LineEnvironmentCommand out;
  for (const std::string& word : command_) out.command.push_back(expand_path(word));
  if (!options_.empty()) out.options = parse_json(options_, "options");
  out.shown_as = out.command[0];
  return out;
}

void ProcessEnvironments::check(const Task* task) const {
  LineEnvironmentCommand tried = command();
  tried.options = trial_options(task);
  tried.start_timeout = start_timeout_;
  const LineEnvironment started(std::move(tried));
}

std::unique_ptr<Environment> ProcessEnvironments::make(double turn_timeout) const {
  LineEnvironmentCommand started = command();
  started.start_timeout = start_timeout_;
  started.turn_timeout = turn_timeout;
  return std::make_unique<LineEnvironment>(std::move(started));
}

namespace {
[[maybe_unused]] const bool added =
    environments().add("process", [] { return std::unique_ptr<EnvironmentSettings>(new ProcessEnvironments); });
}  // namespace

}  // namespace hone
