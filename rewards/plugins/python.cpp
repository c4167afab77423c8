// The "python" reward: a function in a Python file, written for TRL: reward(prompts, completions, **columns) -> list of
// numbers or None.
#include <unistd.h>

#include <filesystem>

#include "core/io/file.h"
#include "rewards/plugins/process.h"
#include "rewards/plugins/python_adapter.h"

namespace hone {
namespace {

class PythonReward : public ProcessReward {
 public:
  void fields(Fields& f) override {
    f("file", file_, "Python file with the reward function");
    f("function", function_, "function in the file; empty = the only one that the file defines");
    f("python", python_, "Python interpreter");
    shared_fields(f);
  }

 protected:
  ProcessCommand command() const override {
    HONE_CHECK(!file_.empty(), "file is empty; set the Python file");
    const std::string file = expand_path(file_);
    ::close(open_file(file));  // the interpreter's message would not name the file
    return {.command = {expand_path(python_), "-u", "-c", std::string(python_adapter())},
            .options = JsonObject{{"file", file}, {"function", function_}},
            .shown_as = std::filesystem::path(file).filename().string()};
  }

 private:
  std::string file_, function_, python_ = "python3";
};

[[maybe_unused]] const bool added = rewards().add("python", [] { return std::unique_ptr<Reward>(new PythonReward); });

}  // namespace
}  // namespace hone
