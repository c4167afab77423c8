#include "cli/argument_table.h"

#include <algorithm>
#include <functional>
#include <map>

#include "core/device/device.h"
#include "core/io/json.h"
#include "data/generator.h"
#include "eval/task.h"
#include "rewards/reward.h"
#include "train/objective.h"

namespace hone {
namespace {

using Kind = ArgumentInfo::Kind;

class ArgumentCollector : public Arguments {
 public:
  void option(const char* name, std::string& value, const char* doc, bool required) override {
    add({.kind = Kind::option,
         .name = name,
         .doc = doc,
         .value = "TEXT",
         .default_value = value,
         .required = required});
  }
  void option(const char* name, int64_t& value, const char* doc) override {
    add({.kind = Kind::option, .name = name, .doc = doc, .value = "INT", .default_value = std::to_string(value)});
  }
  void option(const char* name, double& value, const char* doc) override {
    add({.kind = Kind::option, .name = name, .doc = doc, .value = "FLOAT", .default_value = number_text(value)});
  }
  void options(const char* name, std::vector<std::string>&, const char* doc) override {
    add({.kind = Kind::repeated, .name = name, .doc = doc, .value = "TEXT"});
  }
  void flag(const char* name, bool&, const char* doc) override { add({.kind = Kind::flag, .name = name, .doc = doc}); }
  void positional(const char* name, std::string&, const char* doc, bool required) override {
    add({.kind = Kind::positional, .name = name, .doc = doc, .value = "TEXT", .required = required});
  }
  void choice(const char* name, std::string&, const std::vector<std::string>& choices, const char* doc) override {
    add({.kind = Kind::positional, .name = name, .doc = doc, .value = "TEXT", .required = true, .choices = choices});
  }
  void rest(const char* name, std::vector<std::string>&, const char* doc) override {
    add({.kind = Kind::rest, .name = name, .doc = doc, .value = "TEXT"});
  }

  std::vector<ArgumentInfo> found;

 private:
  // "task,--tasks" is an option with an alias.
  void add(ArgumentInfo argument) {
    const std::string names = argument.name;
    argument.name = names.substr(0, names.find(",--"));
    for (size_t at = argument.name.size(); at < names.size();) {
      const size_t end = std::min(names.find(",--", at + 3), names.size());
      argument.aliases.push_back(names.substr(at + 3, end - at - 3));
      at = end;
    }
    found.push_back(std::move(argument));
  }
};

std::vector<std::string> device_names() {
  std::vector<std::string> out = devices().names();
  out.push_back("auto");
  return out;
}

}  // namespace

std::vector<ArgumentInfo> arguments_of(Command& command) {
  ArgumentCollector collector;
  command.arguments(collector);
  return std::move(collector.found);
}

std::vector<std::string> known_values(const ArgumentInfo& argument) {
  if (!argument.choices.empty()) return argument.choices;
  static const std::map<std::string, std::function<std::vector<std::string>()>> names{
      {"task", known_eval_tasks},
      {"generator", [] { return generators().names(); }},
      {"reward", [] { return rewards().names(); }},
      {"objective", [] { return objectives().names(); }},
      {"device", device_names}};
  const auto known = names.find(argument.name);
  return known == names.end() ? std::vector<std::string>() : known->second();
}

}  // namespace hone
