#pragma once
// The arguments of a command as data: for man pages, shell completion and messages about unknown options. --help prints
// the same texts.
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

struct ArgumentInfo {
  enum class Kind { option, repeated, flag, positional, rest };  // repeated: an option that may be given several times
  Kind kind = Kind::option;
  std::string name;                       // without dashes
  std::vector<std::string> aliases = {};  // other names of an option
  std::string doc = {};
  std::string value = {};          // what kind of value it takes: TEXT, INT, FLOAT; "" for a flag
  std::string default_value = {};  // "" if there is none
  bool required = false;
  std::vector<std::string> choices = {};  // all values that are accepted; empty = any

  bool is_option() const { return kind == Kind::option || kind == Kind::repeated || kind == Kind::flag; }
};

// In the order in which the command declares them.
std::vector<ArgumentInfo> arguments_of(Command& command);

// The value sets that completion offers: choices, or registered names for options such as --task and --device; empty if
// the value is a file or free text.
std::vector<std::string> known_values(const ArgumentInfo& argument);

}  // namespace hone
