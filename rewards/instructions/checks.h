#pragma once
// The checks of IFEval's instructions by id, for instruction.cpp.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rewards/instructions/instruction.h"

namespace hone {

// The arguments of one instruction. Errors name the instruction and the argument.
class InstructionArguments {
 public:
  explicit InstructionArguments(const Instruction& instruction) : instruction_(instruction) {}
  int64_t integer(const char* name) const;
  const std::string& text(const char* name) const;
  std::vector<std::string> texts(const char* name) const;
  // Compares a count with the argument `number` by the argument `relation`: "at least" or "less than".
  bool compare(int64_t count, const char* number, const char* relation) const;

 private:
  const Json& at(const char* name) const;
  std::string path(const char* name) const;
  const Instruction& instruction_;
};

using InstructionCheck = bool (*)(const InstructionArguments& arguments, std::string_view text);
const std::map<std::string, InstructionCheck, std::less<>>& instruction_checks();

}  // namespace hone
