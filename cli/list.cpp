// hone list: the registered names, and the reference of recipe keys.
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>

#include "cli/command.h"
#include "core/io/file.h"
#include "core/text/builtin_templates.h"
#include "data/generator.h"
#include "eval/task.h"
#include "kernels/op.h"
#include "rewards/reward.h"
#include "run/recipe_reference.h"
#include "train/objective.h"
#include "train/optim/optimizer.h"
#include "train/stage.h"

namespace hone {
namespace {

std::vector<std::string> op_names() {
  std::vector<std::string> out;
  for (const OpBase* op : OpBase::all()) {
    std::string line(op->name());
    for (const OpBase::BodyInfo& body : op->bodies()) line += concat("  ", body.name, " (", name_of(body.device), ")");
    out.push_back(line);
  }
  return out;
}

std::vector<std::string> reference_texts() {
  std::vector<std::string> out;
  for (const ReferencePage& page : recipe_reference()) out.push_back(page.text);
  return out;
}

std::vector<std::string> column_lines() {
  std::vector<std::string> out;
  for (const Column column : all_columns()) {
    const ColumnInfo& info = column.info();
    out.push_back(concat(column.name(), "  (", info.per_sequence ? "per sequence" : "per token", ") ", info.doc));
  }
  return out;
}

std::vector<std::string> chat_template_names() {
  std::vector<std::string> out;
  for (const BuiltinTemplate& builtin : builtin_templates()) out.emplace_back(builtin.name);
  return out;
}

class ListCommand : public Command {
 public:
  std::string summary() const override { return "list the registered objectives, rewards, tasks, ops and other names"; }
  std::string example() const override {
    return "hone list objectives\n  hone list recipe-keys --out docs/reference/recipes";
  }
  void arguments(Arguments& a) override {
    std::vector<std::string> names;
    for (const auto& [name, list] : lists()) names.push_back(name);
    a.choice("what", what_, names, "what to list");
    a.option("out", out_, "recipe-keys: folder for its pages; empty = standard output");
  }
  int run() override {
    require_usage(out_.empty() || what_ == "recipe-keys", "list ", what_, ": --out needs recipe-keys");
    if (!out_.empty()) return write_reference();
    for (const std::string& line : lists().at(what_)()) std::printf("%s\n", line.c_str());
    return 0;
  }

 private:
  int write_reference() const {
    std::filesystem::create_directories(out_);
    for (const ReferencePage& page : recipe_reference())
      write_file_atomic(std::filesystem::path(out_) / page.file, page.text);
    return 0;
  }
  static const std::map<std::string, std::function<std::vector<std::string>()>>& lists() {
    static const std::map<std::string, std::function<std::vector<std::string>()>> all{
        {"objectives", [] { return objectives().names(); }},
        {"rewards", [] { return rewards().names(); }},
        {"tasks", [] { return known_eval_tasks(); }},
        {"families", [] { return families().names(); }},
        {"ops", [] { return op_names(); }},
        {"stages", [] { return stages().names(); }},
        {"generators", [] { return generators().names(); }},
        {"optimizers", [] { return optimizers().names(); }},
        {"devices", [] { return devices().names(); }},
        {"columns", [] { return column_lines(); }},
        {"chat-templates", [] { return chat_template_names(); }},
        {"recipe-keys", reference_texts}};
    return all;
  }
  std::string what_, out_;
};

[[maybe_unused]] const bool added = commands().add("list", [] { return std::unique_ptr<Command>(new ListCommand); });

}  // namespace
}  // namespace hone
