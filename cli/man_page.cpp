#include "cli/man_page.h"

#include "cli/argument_table.h"
#include "core/base/build_info.h"

namespace hone {
namespace {

// Escapes text for roff: a backslash, a dash, and a control character at the start of a line.
std::string roff(std::string_view text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_start = c == '\n';
  }
  return out;
}

std::string upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

std::string heading(const std::string& name, const std::string& summary) {
  return concat(".TH ", roff(upper(name)), " 1 \"\" \"hone ", roff(version_text()), "\" \"hone\"\n.SH NAME\n",
                roff(name), " \\- ", roff(summary), "\n");
}

std::string shown_name(const ArgumentInfo& argument) {
  if (!argument.is_option()) return "\\fI" + roff(argument.name) + "\\fR";
  return "\\fB\\-\\-" + roff(argument.name) + "\\fR" +
         (argument.value.empty() ? "" : " \\fI" + argument.value + "\\fR");
}

std::string synopsis(const std::string& name, const std::vector<ArgumentInfo>& arguments) {
  std::string out = ".SH SYNOPSIS\n\\fBhone " + roff(name) + "\\fR";
  for (const ArgumentInfo& argument : arguments)
    if (argument.is_option() && argument.required) out += " " + shown_name(argument);
  for (const ArgumentInfo& argument : arguments)
    if (argument.kind == ArgumentInfo::Kind::positional)
      out += argument.required ? " " + shown_name(argument) : " [" + shown_name(argument) + "]";
  for (const ArgumentInfo& argument : arguments)
    if (argument.kind == ArgumentInfo::Kind::rest) out += " [" + shown_name(argument) + "...]";
  return out + " [\\fIOPTIONS\\fR]\n";
}

std::string section(const char* title, const std::vector<ArgumentInfo>& arguments, bool options) {
  std::string out;
  for (const ArgumentInfo& argument : arguments) {
    if (argument.is_option() != options) continue;
    out += ".TP\n" + shown_name(argument) + "\n" + roff(argument.doc);
    if (argument.required) out += " (required)";
    if (!argument.default_value.empty()) out += roff(" [" + argument.default_value + "]");
    out += "\n";
    if (!argument.choices.empty()) out += "One of: " + roff(join(argument.choices)) + ".\n";
  }
  return out.empty() ? out : concat(".SH ", title, "\n") + out;
}

std::string page_of(const std::string& name, Command& command) {
  const std::vector<ArgumentInfo> arguments = arguments_of(command);
  return heading("hone-" + name, command.summary()) + synopsis(name, arguments) +
         section("ARGUMENTS", arguments, false) + section("OPTIONS", arguments, true) + ".SH EXAMPLE\n.nf\n" +
         roff(command.example()) + "\n.fi\n.SH SEE ALSO\n.BR hone (1)\n";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> man_pages() {
  std::vector<std::pair<std::string, std::string>> out(1);
  std::string list;
  for (const std::string& name : commands().names()) {
    const std::unique_ptr<Command> command = commands().at(name)();
    out.emplace_back("hone-" + name + ".1", page_of(name, *command));
    list += ".TP\n.BR hone\\-" + roff(name) + " (1)\n" + roff(command->summary()) + "\n";
  }
  out.front() = {"hone.1", heading("hone", "pretrain, post-train, serve and evaluate language models") +
                               ".SH SYNOPSIS\n\\fBhone\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]\n.br\n"
                               "\\fBhone\\fR \\fB\\-\\-version\\fR\n.SH COMMANDS\n" +
                               list};
  return out;
}

}  // namespace hone
