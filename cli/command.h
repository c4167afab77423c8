#pragma once
// Command: a subcommand of the hone program, one file each. A command registers itself with one line:
//   [[maybe_unused]] const bool added = commands().add("score", [] { return std::unique_ptr<Command>(new ScoreCommand);
//   });
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/registry.h"
#include "core/config/fields.h"

namespace hone {

// A wrong command line (exit code 2). Any other Error is a failure (exit code 1).
class UsageError : public Error {
 public:
  using Error::Error;
};
// Throws a UsageError of the joined words unless the fact holds.
template <class... Words>
void require_usage(bool fact, const Words&... words) {
  if (!fact) throw UsageError(concat(words...));
}
// Throws a UsageError if settings that were given as options fail a check of their fields().
void check_options(const std::function<void(Fields&)>& fields);

// The arguments of a command. Names have no leading dashes ("max-tokens"). Defaults are the variables' values. The
// parser is CLI11, which only main.cpp includes.
class Arguments {
 public:
  virtual ~Arguments() = default;
  virtual void option(const char* name, std::string& value, const char* doc, bool required = false) = 0;
  virtual void option(const char* name, int64_t& value, const char* doc) = 0;
  virtual void option(const char* name, double& value, const char* doc) = 0;
  virtual void options(const char* name, std::vector<std::string>& values, const char* doc) = 0;  // may be repeated
  virtual void flag(const char* name, bool& value, const char* doc) = 0;
  virtual void positional(const char* name, std::string& value, const char* doc, bool required = true) = 0;
  virtual void choice(const char* name, std::string& value, const std::vector<std::string>& choices,
                      const char* doc) = 0;  // positional, required
  virtual void rest(const char* name, std::vector<std::string>& values, const char* doc) = 0;
};

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string summary() const = 0;
  virtual std::string example() const = 0;
  virtual void arguments(Arguments& a) = 0;
  // The former name of the command, which is accepted with a warning until version 1.0; "" = none.
  virtual std::string old_name() const { return ""; }
  // Former and new names of options ("--max-replies") and of the first positional argument ("overlap"), which are
  // accepted likewise.
  virtual std::vector<std::pair<std::string, std::string>> old_arguments() const { return {}; }
  // Returns the exit code: 0 done, 1 failed. May throw.
  virtual int run() = 0;
};

using CommandFactory = std::unique_ptr<Command> (*)();
Registry<CommandFactory>& commands();

}  // namespace hone
