// hone list: the registered names, and the reference of recipe keys.
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>

#include "cli/command.h"
#include "cli/man_page.h"
#include "core/io/file.h"
#include "core/text/builtin_templates.h"
#include "core/text/tools/reasoning_parser.h"
#include "core/text/tools/tool_parser.h"
#include "data/generator.h"
#include "eval/task.h"
#include "kernels/cuda/body_table.h"
#include "kernels/op.h"
#include "model/io/known_shapes.h"
#include "posttrain/rl/environments/environment.h"
#include "posttrain/rl/environments/tools/tool.h"
#include "rewards/reward.h"
#include "run/recipe/recipe_reference.h"
#include "train/objective.h"
#include "train/optim/optimizer.h"
#include "train/stage.h"

namespace hone {
namespace {

std::vector<std::string> op_names() {
  std::vector<std::string> out;
  const CudaBodies choice = cuda_bodies();
  for (const OpBase* op : OpBase::all()) {
    std::string line(op->name());
    for (const OpBase::BodyInfo& body : op->bodies()) line += concat("  ", body.name, " (", name_of(body.device), ")");
    out.push_back(line);
    if (device_limits_source.all)  // a CUDA build
      for (const std::string& bodies : cuda_body_lines(op->bodies(), choice)) out.push_back(concat("  cuda ", bodies));
  }
  int index = 0;
  for (const DeviceLimits& limits : cuda_device_limits()) out.push_back(device_line(index++, limits, choice));
  return out;
}

std::vector<std::string> reference_texts() {
  std::vector<std::string> out;
  for (const ReferencePage& page : recipe_reference()) out.push_back(page.text);
  return out;
}

std::vector<std::string> man_texts() {
  std::vector<std::string> out;
  for (const auto& [file, text] : man_pages()) out.push_back(text);
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
    return "hone list objectives\n  hone list recipe-keys --out docs/reference/recipes\n  hone list man --out man1";
  }
  void arguments(Arguments& a) override {
    std::vector<std::string> names;
    for (const auto& [name, list] : lists()) names.push_back(name);
    a.choice("what", what_, names, "what to list");
    a.option("out", out_, "recipe-keys, man: folder for the pages; empty = standard output");
  }
  int run() override {
    const bool pages = what_ == "recipe-keys" || what_ == "man";
    require_usage(out_.empty() || pages, "list ", what_, ": --out needs recipe-keys or man");
    if (!out_.empty()) return write_pages();
    for (const std::string& line : lists().at(what_)()) std::printf("%s\n", line.c_str());
    return 0;
  }

 private:
  int write_pages() const {
    const std::filesystem::path folder = expand_path(out_);
    make_folder(folder);
    if (what_ == "man")
      for (const auto& [file, text] : man_pages()) write_file_atomic(folder / file, text);
    else
      for (const ReferencePage& page : recipe_reference()) write_file_atomic(folder / page.file, page.text);
    return 0;
  }
  static const std::map<std::string, std::function<std::vector<std::string>()>>& lists() {
    static const std::map<std::string, std::function<std::vector<std::string>()>> all{
        {"objectives", [] { return objectives().names(); }},
        {"rewards", [] { return rewards().names(); }},
        {"environments", [] { return environments().names(); }},
        {"tasks", [] { return known_eval_tasks(); }},
        {"families", [] { return families().names(); }},
        {"ops", [] { return op_names(); }},
        {"stages", [] { return stages().names(); }},
        {"generators", [] { return generators().names(); }},
        {"optimizers", [] { return optimizers().names(); }},
        {"devices", [] { return devices().names(); }},
        {"shapes", known_shapes},
        {"columns", [] { return column_lines(); }},
        {"chat-templates", [] { return chat_template_names(); }},
        {"tools", [] { return tools().names(); }},
        {"tool-parsers", [] { return tool_parsers().names(); }},
        {"reasoning-parsers", [] { return reasoning_parsers().names(); }},
        {"man", man_texts},
        {"recipe-keys", reference_texts}};
    return all;
  }
  std::string what_, out_;
};

[[maybe_unused]] const bool added = commands().add("list", [] { return std::unique_ptr<Command>(new ListCommand); });

}  // namespace
}  // namespace hone
