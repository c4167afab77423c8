// The program: runs a command, and turns Errors into exit codes. 0 done, 1 failed, 2 wrong usage.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <new>

#include "cli/argument_table.h"
#include "core/base/build_info.h"
#include "core/base/check.h"
#include "core/base/format.h"
#include "core/config/config.h"
#include "core/config/renamed.h"

namespace hone {

Registry<CommandFactory>& commands() {
  static Registry<CommandFactory> registry("command");
  return registry;
}

// "max_tokens must be in [1, 8]" as a message about the option: "--max-tokens must be in [1, 8]".
static std::string message_of_option(const std::string& message) {
  const size_t end = message.find(' ');
  const std::string key = message.substr(0, end);
  const bool is_key = key.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == std::string::npos;
  if (end == std::string::npos || !is_key || message.compare(end, 6, " must ") != 0) return message;
  std::string option = "--" + key;
  std::replace(option.begin(), option.end(), '_', '-');
  return option + message.substr(end);
}

void check_options(const std::function<void(Fields&)>& fields) {
  try {
    check_settings(fields);
  } catch (const Error& error) {
    throw UsageError(message_of_option(error.what()));
  }
}

namespace {

// Says what is wrong with the text of a number before CLI11 converts it. "" = nothing.
template <class T>
std::string problem_of_number(const std::string& text) {
  T value{};
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return "'" + text + "' is out of range";
  if (error == std::errc{} && end == text.data() + text.size()) return "";
  return "'" + text + "' is not " + (std::is_integral_v<T> ? "an integer" : "a number");
}

class CliArguments : public Arguments {
 public:
  explicit CliArguments(CLI::App& app) : app_(app) {}
  void option(const char* name, std::string& value, const char* doc, bool required) override {
    app_.add_option(std::string("--") + name, value, doc)->required(required)->capture_default_str();
  }
  void option(const char* name, int64_t& value, const char* doc) override {
    app_.add_option(std::string("--") + name, value, doc)
        ->capture_default_str()
        ->check(problem_of_number<int64_t>, "", "integer");
  }
  void option(const char* name, double& value, const char* doc) override {
    app_.add_option(std::string("--") + name, value, doc)
        ->capture_default_str()
        ->check(problem_of_number<double>, "", "number");
  }
  void options(const char* name, std::vector<std::string>& values, const char* doc) override {
    app_.add_option(std::string("--") + name, values, doc)->allow_extra_args(false);
  }
  void flag(const char* name, bool& value, const char* doc) override {
    app_.add_flag(std::string("--") + name, value, doc);
  }
  void positional(const char* name, std::string& value, const char* doc, bool required) override {
    app_.add_option(name, value, doc)->required(required);
  }
  void choice(const char* name, std::string& value, const std::vector<std::string>& choices, const char* doc) override {
    const auto problem = [choices](const std::string& text) -> std::string {
      if (std::ranges::find(choices, text) != choices.end()) return "";
      return "unknown '" + text + "'" + suggestion(text, choices) + "; known: " + join(choices);
    };
    app_.add_option(name, value, doc)->required()->check(problem, "{" + join(choices, ",") + "}", "choice");
  }
  void rest(const char* name, std::vector<std::string>& values, const char* doc) override {
    app_.add_option(name, values, doc);
  }

 private:
  CLI::App& app_;
};

using Commands = std::map<std::string, std::unique_ptr<Command>>;

// Replaces the old names of a command and of its arguments, with a warning for each.
void rename_arguments(const Commands& made, std::vector<std::string>& words) {
  if (words.size() < 2) return;
  for (const auto& [name, command] : made)
    if (words[1] == command->old_name()) {
      warn_renamed("command line", "hone " + words[1], "hone " + name);
      words[1] = name;
    }
  const auto found = made.find(words[1]);
  if (found == made.end()) return;
  for (const auto& [old_name, name] : found->second->old_arguments())
    for (size_t i = 2; i < words.size(); ++i) {
      const bool is_option = old_name.starts_with("--");
      const bool matches = words[i] == old_name || (is_option && words[i].starts_with(old_name + "="));
      if (!matches || (!is_option && i > 2)) continue;
      warn_renamed("command line", old_name, name);
      words[i].replace(0, old_name.size(), name);
    }
}

// "; did you mean ...": for the first word that is an option and that the command does not have. "" if there is none.
std::string unknown_option(const Commands& made, const std::vector<std::string>& words) {
  const auto found = words.size() < 2 ? made.end() : made.find(words[1]);
  const bool in_command = found != made.end();
  std::vector<std::string> known{"--help"};
  std::vector<std::string> with_value;
  if (!in_command) known.push_back("--version");
  for (const ArgumentInfo& argument : in_command ? arguments_of(*found->second) : std::vector<ArgumentInfo>()) {
    if (!argument.is_option()) continue;
    std::vector<std::string> names = argument.aliases;
    names.push_back(argument.name);
    for (const std::string& name : names) {
      known.push_back("--" + name);
      if (argument.kind != ArgumentInfo::Kind::flag) with_value.push_back(known.back());
    }
  }
  for (size_t i = in_command ? 2 : 1; i < words.size(); ++i) {
    const std::string word = words[i].substr(0, words[i].find('='));
    if (word == "--") break;
    if (std::ranges::count(with_value, words[i]) > 0) ++i;  // the next word is its value
    if (!word.starts_with("--") || std::ranges::count(known, word) > 0) continue;
    return concat(in_command ? words[1] + ": " : "", "unknown option ", word, suggestion(word, known), " (hone ",
                  in_command ? words[1] + " " : "", "--help lists all)");
  }
  return "";
}

int run_program(int argc, char** argv) {
  Commands made;
  for (const std::string& name : commands().names()) made[name] = commands().at(name)();
  std::vector<std::string> words(argv, argv + argc);
  rename_arguments(made, words);
  if (argc > 1 && argv[1][0] != '-') require_usage(commands().contains(words[1]), commands().unknown(words[1]));
  CLI::App app("hone: pretrain, post-train, serve and evaluate language models", "hone");
  app.require_subcommand(1);
  app.set_version_flag("--version", concat("hone ", version_text(), "\n", build_text()));
  for (const auto& [name, command] : made) {
    CLI::App* sub = app.add_subcommand(name, command->summary());
    sub->footer("Example:\n  " + command->example());
    CliArguments arguments(*sub);
    command->arguments(arguments);
  }
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  try {
    app.parse(argc, pointers.data());
  } catch (const CLI::ParseError& error) {
    const std::string unknown = error.get_exit_code() == 0 ? "" : unknown_option(made, words);
    require_usage(unknown.empty(), unknown);
    const int code = app.exit(error);
    std::cout.flush();
    HONE_CHECK(std::cout.good(), "standard output: cannot write");
    return code == 0 ? 0 : 2;
  }
  const int code = made.at(app.get_subcommands().front()->get_name())->run();
  HONE_CHECK(std::fflush(stdout) == 0 && !std::ferror(stdout), "standard output: cannot write: ", std::strerror(errno));
  return code;
}

}  // namespace
}  // namespace hone

static void print_error(const std::string& message) {
  std::fprintf(stderr, "hone: %s\n", hone::printable(message).c_str());
}

int main(int argc, char** argv) {
  try {
    return hone::run_program(argc, argv);
  } catch (const hone::UsageError& error) {
    print_error(error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "hone: out of memory\n");
    return 1;
  } catch (const std::filesystem::filesystem_error& error) {  // a loop of links, a folder that may not be read
    print_error(error.path1().string() + ": " + error.code().message());
    return 1;
  } catch (const std::exception& error) {
    print_error(error.what());
    return 1;
  }
}
