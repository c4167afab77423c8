#pragma once
// Verifiable instructions of IFEval (Zhou et al. 2023, arXiv 2311.07911): the 25 kinds and how each is checked.
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace hone {

// "keywords:existence" and its arguments ({"keywords": [...]}). A null argument counts as absent.
struct Instruction {
  std::string id;
  Json arguments;
};

// Reads the columns instruction_id_list and kwargs of a row. Throws an Error that names the column and what is wrong.
std::vector<Instruction> read_instructions(const Json& row);

// Whether a text follows an instruction. Throws an Error that names an unknown id (with the nearest known), an argument
// that is missing or wrong, or a keyword that is not a regular expression.
bool follows_instruction(const Instruction& instruction, std::string_view text);

// Verdicts on a reply, in the order of the instructions. A blank reply follows none. loose: the reply without its first
// line, its last line, both, with or without asterisks follows the instruction.
struct InstructionVerdicts {
  std::vector<bool> strict, loose;
};
InstructionVerdicts check_instructions(const std::vector<Instruction>& instructions, const std::string& reply);

// The ids of all kinds.
std::vector<std::string> instruction_ids();

}  // namespace hone
