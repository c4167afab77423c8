// The program: runs a command, and turns Errors into exit codes. 0 done, 1 failed, 2 wrong usage.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>

#include "cli/command.h"
#include "core/base/check.h"
#include "core/config/config.h"

namespace hone {

Registry<CommandFactory>& commands() {
  static Registry<CommandFactory> registry("command");
  return registry;
}

void check_options(const std::function<void(Fields&)>& fields) {
  try {
    check_settings(fields);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

namespace {

class CliArguments : public Arguments {
 public:
  explicit CliArguments(CLI::App& app) : app_(app) {}
  void option(const char* name, std::string& value, const char* doc, bool required) override {
    app_.add_option(std::string("--") + name, value, doc)->required(required)->capture_default_str();
  }
  void option(const char* name, int64_t& value, const char* doc) override {
    app_.add_option(std::string("--") + name, value, doc)->capture_default_str();
  }
  void option(const char* name, double& value, const char* doc) override {
    app_.add_option(std::string("--") + name, value, doc)->capture_default_str();
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
    app_.add_option(name, value, doc)->required()->check(CLI::IsMember(choices));
  }
  void rest(const char* name, std::vector<std::string>& values, const char* doc) override {
    app_.add_option(name, values, doc);
  }

 private:
  CLI::App& app_;
};

int run_program(int argc, char** argv) {
  if (argc > 1 && argv[1][0] != '-') require_usage(commands().contains(argv[1]), commands().unknown(argv[1]));
  CLI::App app("hone: pretrain, post-train, serve and evaluate language models", "hone");
  app.require_subcommand(1);
  app.set_version_flag("--version", "hone " HONE_VERSION);
  std::map<CLI::App*, std::unique_ptr<Command>> instances;
  for (const std::string& name : commands().names()) {
    std::unique_ptr<Command> command = commands().at(name)();
    CLI::App* sub = app.add_subcommand(name, command->summary());
    sub->footer("Example:\n  " + command->example());
    CliArguments arguments(*sub);
    command->arguments(arguments);
    instances[sub] = std::move(command);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    std::cout.flush();
    HONE_CHECK(std::cout.good(), "standard output: cannot write");
    return code == 0 ? 0 : 2;
  }
  const int code = instances.at(app.get_subcommands().front())->run();
  HONE_CHECK(std::fflush(stdout) == 0 && !std::ferror(stdout), "standard output: cannot write: ", std::strerror(errno));
  return code;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) {
  try {
    return hone::run_program(argc, argv);
  } catch (const hone::UsageError& error) {
    std::fprintf(stderr, "hone: %s\n", error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "hone: out of memory\n");
    return 1;
  } catch (const std::filesystem::filesystem_error& error) {  // a loop of links, a folder that may not be read
    std::fprintf(stderr, "hone: %s: %s\n", error.path1().c_str(), error.code().message().c_str());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hone: %s\n", error.what());
    return 1;
  }
}
