// The tool "functions": functions of a Python file. Their signatures and docstrings become the schemas
// (rewards/plugins/python_tools.h). A process for each episode calls them, so that the file may keep a state.
#include <filesystem>
#include <mutex>
#include <optional>

#include "core/base/log.h"
#include "core/io/file.h"
#include "posttrain/rl/environments/tools/functions_adapter.h"
#include "posttrain/rl/environments/tools/tool.h"
#include "rewards/plugins/line_process.h"
#include "rewards/plugins/python_process.h"
#include "rewards/plugins/python_tools.h"
#include "rewards/plugins/text.h"

namespace hone {
namespace {

LineProcess::Clock::time_point after(double seconds) {
  return LineProcess::Clock::now() +
         std::chrono::duration_cast<LineProcess::Clock::duration>(std::chrono::duration<double>(seconds));
}

class Functions : public Tool {
 public:
  Functions(PythonTools file, uint64_t seed, double timeout) : file_(std::move(file)), seed_(seed), timeout_(timeout) {}

  ToolResult call(const ToolCall& call) override {
    if (!process_) start();
    const int64_t id = next_id_++;
    const Json answer = exchange(JsonObject{{"id", id}, {"name", call.name}, {"arguments", call.arguments}}, timeout_);
    HONE_CHECK(answer.at("id", "the answer") == Json(id), "its answer is not to request ", id);
    if (const Json* error = answer.find("error")) return {error->as_string("error"), true};
    return {answer.at("text", "the answer").as_string("text"), false};
  }

 private:
  void start() {
    constexpr double start_timeout = 120;
    const std::string shown = std::filesystem::path(file_.file).filename().string();
    process_.emplace(
        std::vector<std::string>{expand_path(file_.python), "-u", "-c", python_program(functions_adapter())},
        [this, shown](std::string_view line) {
          constexpr int most = 20;  // lines of a file that writes much
          if (lines_shown_++ < most) log::info(shown, ": ", plain_text(line));
        });
    exchange(JsonObject{{"file", expand_path(file_.file)}, {"seed", static_cast<int64_t>(seed_)}}, start_timeout);
  }
  Json exchange(const Json& request, double timeout) {
    Json answer = parse_json(process_->exchange(request.dump(), after(timeout)), "the answer of " + file_.file);
    HONE_CHECK(answer.is_object(), file_.file, ": its answer is no object");
    return answer;
  }

  const PythonTools file_;
  const uint64_t seed_;
  const double timeout_;
  int64_t next_id_ = 0;
  int lines_shown_ = 0;
  std::optional<LineProcess> process_;
};

class FunctionsTool : public ToolSettings {
 public:
  void fields(Fields& f) override {
    f("path", file_.file, "Python file whose functions have type hints and a docstring with Args");
    f("functions", file_.functions, "its functions that the policy may call; empty = all without a leading _");
    f("python", file_.python, "Python interpreter");
  }
  void prepare() override { HONE_CHECK(!file_.file.empty(), "path is empty; set the Python file"); }
  void check() const override { HONE_CHECK(!schemas().empty(), file_.file, " has no functions"); }
  JsonArray schemas() const override {
    const std::lock_guard lock(mutex_);
    if (!schemas_) schemas_ = python_tool_schemas(file_).as_array();
    return *schemas_;
  }
  std::unique_ptr<Tool> make(uint64_t seed, double timeout) const override {
    return std::make_unique<Functions>(file_, seed, timeout);
  }

 private:
  PythonTools file_;
  mutable std::mutex mutex_;
  mutable std::optional<JsonArray> schemas_;  // made once: it starts a process
};

[[maybe_unused]] const bool added =
    tools().add("functions", [] { return std::unique_ptr<ToolSettings>(new FunctionsTool); });

}  // namespace
}  // namespace hone
