#include "rewards/instructions/instruction.h"

#include <algorithm>
#include <array>

#include "core/base/suggest.h"
#include "core/text/unicode/unicode.h"
#include "rewards/instructions/checks.h"
#include "rewards/instructions/python_text.h"

namespace hone {
namespace {

// The reply without its first line, its last line, or both.
std::array<std::string, 4> line_variants(const std::string& reply) {
  const size_t first = reply.find('\n'), last = reply.rfind('\n');
  const bool one_line = first == std::string::npos;
  const auto part = [&](size_t begin, size_t end) {
    return begin < end ? std::string(stripped(std::string_view(reply).substr(begin, end - begin))) : std::string();
  };
  const size_t second_line = one_line ? reply.size() : first + 1, last_line = one_line ? 0 : last;
  return {reply, part(second_line, reply.size()), part(0, last_line), part(second_line, last_line)};
}

// Invalid bytes become U+FFFD, as in a text that Python has read.
std::string as_valid_utf8(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    append_utf8(out, c.value);
    at += c.length;
  }
  return out;
}

std::vector<std::string> loose_variants(const std::string& reply) {
  std::vector<std::string> out;
  for (std::string& variant : line_variants(reply)) {
    std::string plain = variant;
    std::erase(plain, '*');
    if (plain != variant) out.push_back(std::move(plain));
    out.push_back(std::move(variant));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  std::erase_if(out, [](const std::string& variant) { return stripped(variant).empty(); });
  return out;
}

}  // namespace

std::vector<Instruction> read_instructions(const Json& row) {
  const JsonArray& ids = row.at("instruction_id_list", "row").as_array("instruction_id_list");
  const Json* given = row.find("kwargs");
  const JsonArray arguments =
      given && !given->is_null() ? given->as_array("kwargs") : JsonArray(ids.size(), JsonObject{});
  HONE_CHECK(ids.size() == arguments.size(), "kwargs has ", arguments.size(), " entries, instruction_id_list ",
             ids.size(), "; give one object of arguments for each instruction");
  HONE_CHECK(!ids.empty(), "instruction_id_list is empty; list at least one instruction");
  std::vector<Instruction> out;
  for (size_t i = 0; i < ids.size(); ++i) {
    out.push_back({ids[i].as_string("instruction_id_list"), arguments[i]});
    if (!arguments[i].is_null()) static_cast<void>(arguments[i].as_object("kwargs"));
  }
  return out;
}

bool follows_instruction(const Instruction& instruction, std::string_view text) {
  const auto& checks = instruction_checks();
  const auto check = checks.find(instruction.id);
  HONE_CHECK(check != checks.end(), "unknown instruction '", instruction.id, "'",
             suggestion(instruction.id, instruction_ids()), "; known: ", join(instruction_ids()));
  return check->second(InstructionArguments(instruction), text);
}

InstructionVerdicts check_instructions(const std::vector<Instruction>& instructions, const std::string& bytes) {
  InstructionVerdicts out;
  const std::string reply = as_valid_utf8(bytes);
  const bool blank = stripped(reply).empty();
  const std::vector<std::string> variants = loose_variants(reply);
  for (const Instruction& one : instructions) {
    const bool strict = follows_instruction(one, reply) && !blank;
    out.strict.push_back(strict);
    out.loose.push_back(strict || std::any_of(variants.begin(), variants.end(), [&](const std::string& variant) {
                          return follows_instruction(one, variant);
                        }));
  }
  return out;
}

std::vector<std::string> instruction_ids() {
  std::vector<std::string> out;
  for (const auto& [id, check] : instruction_checks()) out.push_back(id);
  return out;
}

}  // namespace hone
