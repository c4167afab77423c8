// The "python" reward: a function in a Python file, written for TRL: reward(prompts, completions, **columns) -> list of
// numbers or None.
#include <unistd.h>

#include <filesystem>

#include "core/io/file.h"
#include "rewards/plugins/process.h"
#include "rewards/plugins/python_adapter.h"
#include "rewards/plugins/python_process.h"

namespace hone {
namespace {

class PythonReward : public ProcessReward {
 public:
  void fields(Fields& f) override {
    f.alias("file", "path");
    f("path", path_, "Python file with the reward function");
    f("function", function_, "function in the file; empty = the only one that the file defines");
    f("python", python_, "Python interpreter");
    shared_fields(f);
  }

  // The interpreter's message would not name the file.
  std::string unavailable_reason() const override {
    try {
      ::close(open_file(expand_path(path_)));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

 protected:
  ProcessCommand command() const override {
    HONE_CHECK(!path_.empty(), "path is empty; set the Python file");
    const std::string file = expand_path(path_);
    return {.command = {expand_path(python_), "-u", "-c", python_program(python_adapter())},
            .options = JsonObject{{"file", file}, {"function", function_}},
            .shown_as = std::filesystem::path(file).filename().string()};
  }
  // With the columns the adapter checks the function's parameters.
  Json trial_options(const RewardTrial& trial) const override {
    Json out = command().options;
    if (!trial.task) return out;
    JsonArray columns;
    if (trial.task->columns.is_object())
      for (const auto& [name, value] : trial.task->columns.as_object()) columns.push_back(name);
    if (!trial.task->answer.empty()) columns.push_back("answer");
    out.set("columns", columns);
    return out;
  }

 private:
  std::string path_, function_, python_ = "python3";
};

[[maybe_unused]] const bool added = rewards().add("python", [] { return std::unique_ptr<Reward>(new PythonReward); });

}  // namespace
}  // namespace hone
