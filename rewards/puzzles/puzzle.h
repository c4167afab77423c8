#pragma once
// Judges for puzzles of reasoning-gym (Stojanovski et al. 2025) that have several right answers. A judge registers
// under the name of its family. Families without a judge are compared by same_answer (rewards/answers/answer_text.h).
#include <string>
#include <string_view>
#include <unordered_set>

#include "core/base/registry.h"
#include "core/io/json.h"

namespace hone {

// One puzzle. A member that the row lacks is an Error of the JSON reader.
struct Puzzle {
  const Json& metadata;  // as reasoning-gym writes it for this family
  std::string_view reference;
  const std::unordered_set<std::string>& words;  // a dictionary in capitals; may be empty
};

// Returns a score from 0 to 1 by reasoning-gym's rules. Some families score a detour lower. An answer that does not
// solve the puzzle scores 0. `answer` is at most longest_puzzle_answer bytes. Time is bounded for any answer.
using PuzzleJudge = double (*)(const Puzzle& puzzle, std::string_view answer);
Registry<PuzzleJudge>& puzzle_judges();

inline constexpr size_t longest_puzzle_answer = size_t{1} << 16;

// Returns 1 for the fewest moves known, less for more moves.
inline double detour_score(size_t fewest, size_t used) {
  return used <= fewest ? 1 : static_cast<double>(fewest) / static_cast<double>(used);
}

}  // namespace hone
