// Evaluation kind "group": several tasks as one. Each task is a subtask. The group's figures are over all problems,
// which weights tasks by their size.
#include "eval/task.h"

namespace hone {
namespace {

class TaskGroup : public EvalTask {
 public:
  void fields(Fields& f) override { f("tasks", names_, "names or TOML files of the tasks"); }
  void prepare() override { HONE_CHECK(!names_.empty(), "a group needs tasks: set the list of their names"); }
  void check() const override {
    for (const EvalTaskSpec& spec : load()) spec.task->check();
  }
  void check_rows(const EvalOptions& options) const override {
    for (const EvalTaskSpec& spec : load()) spec.task->check_rows(options);
  }
  void each_row(const std::function<void(const Json&, const std::string&)>& row) const override {
    for (const EvalTaskSpec& spec : load()) spec.task->each_row(row);
  }

  EvalRun run(EvalTarget& target, const EvalOptions& options) const override {
    return joined([&](const EvalTask& task) { return task.run(target, options); });
  }
  EvalRun run_remote(Endpoint& endpoint, const EvalOptions& options) const override {
    return joined([&](const EvalTask& task) { return task.run_remote(endpoint, options); });
  }

 private:
  EvalRun joined(const std::function<EvalRun(const EvalTask&)>& run_task) const {
    EvalRun out;
    for (const EvalTaskSpec& spec : load()) {
      EvalRun part = run_task(*spec.task);
      if (out.samples.empty()) out.primary = part.primary;
      if (out.primary != part.primary) out.primary.clear();
      const auto before = static_cast<int64_t>(out.samples.size());
      for (EvalSample& sample : part.samples) {
        sample.doc_id += before;
        sample.subtask = spec.name;
        out.samples.push_back(std::move(sample));
      }
      out.exponents.merge(part.exponents);
      out.lower.merge(part.lower);
      if (!part.sampled.empty()) out.sampled = part.sampled;  // all tasks sample the same number of completions
      out.num_tokens += part.num_tokens;
      for (const auto& [name, value] : part.facts) out.facts[spec.name + "/" + name] = value;
    }
    return out;
  }

  std::vector<EvalTaskSpec> load() const {
    std::vector<EvalTaskSpec> out;
    for (const std::string& name : names_) {
      out.push_back(load_eval_task(name));
      HONE_CHECK(out.back().kind() != "group", "group: '", name, "' is a group itself; list its tasks");
    }
    return out;
  }
  std::vector<std::string> names_;
};

[[maybe_unused]] const bool added = eval_kinds().add("group", [] { return std::unique_ptr<EvalTask>(new TaskGroup); });

}  // namespace
}  // namespace hone
