#pragma once
// How an answer to a puzzle of reasoning-gym (Stojanovski et al. 2025) is judged where more than the reference's own
// text is right. A family joins the registry by its name; one that is not there is judged by same_answer
// (rewards/answers/answer_text.h).
#include <string>
#include <string_view>
#include <unordered_set>

#include "core/base/registry.h"
#include "core/io/json.h"

namespace hone {

// One puzzle. What the row lacks is an Error of the json's.
struct Puzzle {
  const Json& metadata;  // as reasoning-gym writes it for the family
  std::string_view reference;
  const std::unordered_set<std::string>& words;  // of a dictionary, in capitals; may be empty
};

// 0 to 1: what solves the puzzle scores as reasoning-gym scores it (some families give less to a detour), what does not
// scores 0. answer is at most longest_puzzle_answer bytes; time is bounded for any.
using PuzzleJudge = double (*)(const Puzzle& puzzle, std::string_view answer);
Registry<PuzzleJudge>& puzzle_judges();

inline constexpr size_t longest_puzzle_answer = size_t{1} << 16;

// 1 for the fewest moves that are known, less for more of them.
inline double detour_score(size_t fewest, size_t used) {
  return used <= fewest ? 1 : static_cast<double>(fewest) / static_cast<double>(used);
}

}  // namespace hone
