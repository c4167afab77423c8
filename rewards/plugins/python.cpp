// A reward function in a Python file, written for TRL: reward(prompts, completions, **columns) -> list of numbers or
// None.
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
    f("file", file_, "the Python file");
    f("function", function_, "a function in it; empty = the only one that the file defines");
    f("python", python_, "the interpreter");
    shared_fields(f);
  }

 protected:
  ProcessCommand command() const override {
    HONE_CHECK(!file_.empty(), "file: it names the Python file");
    const std::string file = expand_path(file_);
    ::close(open_file(file));  // the interpreter's own words would not name it
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
