// The "ifeval" reward: 1 if a completion follows every instruction of its row (IFEval, Zhou et al. 2023). A row has
// instruction_id_list and kwargs. parts: strict (the score), loose, and the strict verdict of each instruction by its
// id.
#include "core/base/format.h"
#include "rewards/instructions/instruction.h"
#include "rewards/reward.h"

namespace hone {

namespace {

class IfEval : public Reward {
 public:
  void fields(Fields& f) override {
    f("loose", loose_, "score the loose verdict: without the first or last line, or without asterisks, also counts");
    f("counts", counts_,
      "more parts: num_instructions, and how many of them are followed: num_strict, num_loose (for averages over "
      "instructions)");
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    if (!task.columns.is_object() || !task.columns.find("instruction_id_list"))
      return {.note = "the row has no instruction_id_list", .skipped = true};
    try {
      return verdict(read_instructions(task.columns), completion.text);
    } catch (const Error& error) {  // a wrong row, not a wrong completion
      return {.note = error.what(), .failed = true};
    }
  }

 private:
  RewardScore verdict(const std::vector<Instruction>& instructions, const std::string& reply) const {
    const InstructionVerdicts verdicts = check_instructions(instructions, reply);
    RewardScore out;
    size_t num_strict = 0, num_loose = 0;
    for (size_t i = 0; i < instructions.size(); ++i) {
      num_strict += verdicts.strict[i];
      num_loose += verdicts.loose[i];
      std::string name = instructions[i].id;
      for (int again = 2; out.parts.contains(name); ++again) name = concat(instructions[i].id, "#", again);
      out.parts[name] = verdicts.strict[i] ? 1.0 : 0.0;
      if (!verdicts.strict[i]) out.note += (out.note.empty() ? "does not follow " : ", ") + name;
    }
    out.parts["strict"] = num_strict == instructions.size() ? 1.0 : 0.0;
    out.parts["loose"] = num_loose == instructions.size() ? 1.0 : 0.0;
    if (counts_) {
      out.parts["num_instructions"] = static_cast<double>(instructions.size());
      out.parts["num_strict"] = static_cast<double>(num_strict);
      out.parts["num_loose"] = static_cast<double>(num_loose);
    }
    out.score = out.parts[loose_ ? "loose" : "strict"];
    return out;
  }

  bool loose_ = false, counts_ = false;
};

[[maybe_unused]] const bool added = rewards().add("ifeval", [] { return std::unique_ptr<Reward>(new IfEval); });

}  // namespace

}  // namespace hone
