// The "python" environment: a class in a Python file, written for TRL's environment_factory (public methods are tools)
// or in Gymnasium's style (reset and step).
#include <filesystem>

#include "core/io/file.h"
#include "posttrain/rl/environments/environment_adapter.h"
#include "posttrain/rl/environments/process.h"
#include "rewards/plugins/python_process.h"
#include "rewards/plugins/python_tools.h"

namespace hone {
namespace {

class PythonEnvironments : public ProcessEnvironments {
 public:
  void fields(Fields& f) override {
    f("path", path_, "Python file with the environment");
    f("class", class_,
      "class in the file, or function that returns an environment; empty = environment_factory, or the only class that "
      "the file defines");
    f("python", python_, "Python interpreter");
    shared_fields(f);
  }

 protected:
  LineEnvironmentCommand command() const override {
    HONE_CHECK(!path_.empty(), "path is empty; set the Python file");
    const std::string file = expand_path(path_);
    return {.command = {expand_path(python_), "-u", "-c", python_program(environment_adapter())},
            .options = JsonObject{{"file", file}, {"factory", class_}, {"python_tools", python_tools()}},
            .shown_as = std::filesystem::path(file).filename().string()};
  }

 private:
  std::string path_, class_, python_ = "python3";
};

[[maybe_unused]] const bool added =
    environments().add("python", [] { return std::unique_ptr<EnvironmentSettings>(new PythonEnvironments); });

}  // namespace
}  // namespace hone
