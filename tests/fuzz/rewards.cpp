// The first byte chooses a reward, the rest is a completion. Its score is finite and the same twice.
#include <cmath>
#include <cstdlib>
#include <string>

#include "rewards/puzzles/puzzle.h"
#include "rewards/reward.h"

namespace {

// Puzzles of families whose judges parse the answer.
constexpr const char* puzzles[] = {
    R"({"task": "jugs", "metadata": {"puzzle": {"jug_capacities": [3, 5], "target": 4}}})",
    R"({"task": "tower_of_hanoi", "metadata": {"num_disks": 2, "num_pegs": 3, "start_peg": 1, "target_peg": 3, "solution_length": 3}})",
    R"({"task": "shortest_path", "metadata": {"matrix": [["*", "O"], ["O", "#"]], "solution": ["right", "down"]}})",
    R"({"task": "propositional_logic", "metadata": {"premises": ["P → Q", "P"], "variables": ["P", "Q"]}})",
    R"({"task": "graph_color", "metadata": {"puzzle": {"vertices": [0, 1], "edges": [[0, 1]], "color_options": [1, 2]}}})",
    R"({"task": "n_queens", "metadata": {"puzzle": [["_"]]}})",
    R"({"task": "futoshiki", "metadata": {"puzzle": [[0, 0], [0, 0]], "constraints": [[0, 0, 0, 1, "<"]]}})",
    R"({"task": "word_ladder", "metadata": {"start_word": "COLD", "end_word": "CARD"}})",
    R"({"task": "letter_counting", "answer": "3"})",
};
constexpr const char* kinds[] = {
    "choice",  "number",    "format",       "exact", "length", "overlong", "sequence_completion",
    "r1_zero", "countdown", "reasoning_gym"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string kind = kinds[data[0] % std::size(kinds)];
  const auto reward = hone::make_reward(kind);
  hone::Task task{
      .id = "t", .prompt = "1,3:7,3", .messages = {}, .answer = kind == "choice" ? "B" : "12", .columns = {}};
  task.columns = kind == "countdown" ? hone::parse_json(R"({"nums": [3, 4, 7], "target": 12})", "row")
                                     : hone::parse_json(puzzles[data[1] % std::size(puzzles)], "row");
  const hone::Completion completion{
      .ids = {1, 2}, .text = std::string(reinterpret_cast<const char*>(data + 2), size - 2), .finish_reason = "stop"};
  const hone::Score once = reward->score(task, completion), again = reward->score(task, completion);
  if (!std::isfinite(once.score) || once.score != again.score || once.note != again.note) std::abort();
  return 0;
}
