// hone completion: scripts with which a shell completes commands, options and their values.
#include <cstdio>
#include <map>

#include "cli/argument_table.h"

namespace hone {
namespace {

struct CommandInfo {
  std::string name, summary;
  std::vector<ArgumentInfo> arguments;
};

std::vector<CommandInfo> command_table() {
  std::vector<CommandInfo> out;
  for (const std::string& name : commands().names()) {
    const std::unique_ptr<Command> command = commands().at(name)();
    out.push_back({name, command->summary(), arguments_of(*command)});
  }
  return out;
}

// A word in single quotes for a POSIX shell.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

bool takes_value(const ArgumentInfo& argument) {
  return argument.is_option() && argument.kind != ArgumentInfo::Kind::flag;
}

// ---- bash

// The bash statement that completes a value.
std::string bash_values(const ArgumentInfo& argument) {
  if (argument.name == "recipe") return "_hone_files '*.toml'";
  const std::vector<std::string> values = known_values(argument);
  return values.empty() ? "_hone_files '*'" : "_hone_words " + quoted(join(values, " "));
}

std::string bash_case(const CommandInfo& command) {
  std::string options = "--help", values, first, later = "_hone_files '*'";
  int positionals = 0;
  for (const ArgumentInfo& argument : command.arguments) {
    if (argument.is_option()) options += " --" + argument.name;
    for (const std::string& alias : argument.aliases) options += " --" + alias;
    if (takes_value(argument))
      values += concat("        --", argument.name, ") ", bash_values(argument), "; return ;;\n");
    if (argument.kind == ArgumentInfo::Kind::positional && positionals++ == 0) first = bash_values(argument);
  }
  return concat("    ", command.name, ")\n      case $previous in\n", values, "      esac\n",
                "      if [[ $current == -* ]]; then _hone_words ", quoted(options), "; return; fi\n",
                first.empty() ? "" : concat("      if ((place == 2)); then ", first, "; return; fi\n"), "      ", later,
                " ;;\n");
}

std::string bash_script(const std::vector<CommandInfo>& table) {
  std::string names, cases;
  for (const CommandInfo& command : table) {
    names += (names.empty() ? "" : " ") + command.name;
    cases += bash_case(command);
  }
  return concat(R"(# bash completion of hone. Load it with: source <(hone completion bash)
_hone_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current"); }
_hone_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -d -- "$current"; compgen -f -X "!$1" -- "$current" | while IFS= read -r file; do
    [[ -d $file ]] || printf '%s\n' "$file"; done)
}
_hone() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} place=$COMP_CWORD
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then _hone_words ')",
                names, R"( --help --version'; return; fi
  case ${COMP_WORDS[1]} in
)",
                cases, R"(  esac
}
complete -F _hone hone
)");
}

// ---- zsh

// Escapes the characters that separate the parts of an _arguments specification.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const ArgumentInfo& argument) {
  if (argument.name == "recipe") return "_files -g \"*.toml\"";
  const std::vector<std::string> values = known_values(argument);
  return values.empty() ? "_files" : "(" + join(values, " ") + ")";
}

std::string zsh_spec(const ArgumentInfo& argument) {
  const std::string action = zsh_action(argument);
  switch (argument.kind) {
    case ArgumentInfo::Kind::flag:
      return concat("--", argument.name, "[", zsh_text(argument.doc), "]");
    case ArgumentInfo::Kind::option:
      return concat("--", argument.name, "[", zsh_text(argument.doc), "]:", argument.name, ":", action);
    case ArgumentInfo::Kind::repeated:
      return concat("*--", argument.name, "[", zsh_text(argument.doc), "]:", argument.name, ":", action);
    case ArgumentInfo::Kind::positional:
      return concat(":", argument.name, ":", action);
    case ArgumentInfo::Kind::rest:
      return concat("*:", argument.name, ":", action);
  }
  return "";
}

std::string zsh_script(const std::vector<CommandInfo>& table) {
  std::string names, cases;
  for (const CommandInfo& command : table) {
    names += "    " + quoted(zsh_text(command.name) + ":" + command.summary) + "\n";
    cases += "    " + command.name + ")\n      _arguments '--help[print the help of this command]'";
    for (const ArgumentInfo& argument : command.arguments) cases += " \\\n        " + quoted(zsh_spec(argument));
    cases += " ;;\n";
  }
  return concat(R"(#compdef hone
# zsh completion of hone. Load it with: source <(hone completion zsh)
_hone() {
  local -a hone_commands
  hone_commands=(
)",
                names, R"(  )
  if ((CURRENT == 2)); then
    _describe command hone_commands
    return
  fi
  shift words
  ((CURRENT--))
  case $words[1] in
)",
                cases, R"(  esac
}
if [[ $funcstack[1] == _hone ]]; then _hone "$@"; else compdef _hone hone; fi
)");
}

// ---- fish

// A word in single quotes for fish, which escapes a quote by a backslash.
std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

std::string fish_line(const std::string& command, const ArgumentInfo& argument) {
  const std::string line = concat("complete -c hone -n '__fish_seen_subcommand_from ", command, "'");
  const std::vector<std::string> values = known_values(argument);
  const std::string list = values.empty() ? "" : " -x -a " + fish_quoted(join(values, " "));
  const std::string doc = " -d " + fish_quoted(argument.doc);
  if (!argument.is_option()) {
    if (argument.name == "recipe") return line + " -a '(__fish_complete_suffix .toml)'\n";
    return values.empty() ? "" : concat(line, " -f -a ", fish_quoted(join(values, " ")), "\n");
  }
  const std::string value = argument.kind == ArgumentInfo::Kind::flag ? "" : values.empty() ? " -r" : list;
  return concat(line, " -l ", argument.name, value, doc, "\n");
}

std::string fish_script(const std::vector<CommandInfo>& table) {
  std::string out =
      "# fish completion of hone. Load it with: hone completion fish | source\n"
      "complete -c hone -n __fish_use_subcommand -f -l version -d 'print the version'\n";
  for (const CommandInfo& command : table)
    out += concat("complete -c hone -n __fish_use_subcommand -f -a ", command.name, " -d ",
                  fish_quoted(command.summary), "\n");
  for (const CommandInfo& command : table)
    for (const ArgumentInfo& argument : command.arguments) out += fish_line(command.name, argument);
  return out;
}

using Script = std::string (*)(const std::vector<CommandInfo>&);
const std::map<std::string, Script>& scripts() {
  static const std::map<std::string, Script> all{{"bash", bash_script}, {"fish", fish_script}, {"zsh", zsh_script}};
  return all;
}

class Completion : public Command {
 public:
  std::string summary() const override { return "print a script for shell completion"; }
  std::string example() const override {
    return "hone completion bash > ~/.local/share/bash-completion/completions/hone\n  source <(hone completion zsh)\n  "
           "hone completion fish > ~/.config/fish/completions/hone.fish";
  }
  void arguments(Arguments& a) override {
    std::vector<std::string> names;
    for (const auto& [name, script] : scripts()) names.push_back(name);
    a.choice("shell", shell_, names, "shell that reads the script");
  }
  int run() override {
    std::printf("%s", scripts().at(shell_)(command_table()).c_str());
    return 0;
  }

 private:
  std::string shell_;
};

[[maybe_unused]] const bool added =
    commands().add("completion", [] { return std::unique_ptr<Command>(new Completion); });

}  // namespace
}  // namespace hone
