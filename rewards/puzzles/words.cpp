// Judges for puzzles of letters and words: palindrome_generation, word_ladder.
#include <algorithm>
#include <cmath>

#include "rewards/answers/answer_text.h"
#include "rewards/answers/text.h"
#include "rewards/puzzles/puzzle.h"

namespace hone {

namespace {

// Scores an arrangement of all given letters that reads the same in both directions.
double palindrome(const Puzzle& puzzle, std::string_view text) {
  std::string given, written = lower(text);
  for (const Json& letter : puzzle.metadata.at("letters").as_array("letters"))
    given += lower(letter.as_string("letter"));
  if (!std::equal(written.begin(), written.end(), written.rbegin())) return 0;
  std::sort(given.begin(), given.end());
  std::sort(written.begin(), written.end());
  return given == written ? 1 : 0;
}

// Scores a comma-separated chain of words from start to end, each one letter different from the previous one. Every
// unknown word halves the score.
double word_ladder(const Puzzle& puzzle, std::string_view text) {
  const std::string &start = puzzle.metadata.at("start_word").as_string("start_word"),
                    &end = puzzle.metadata.at("end_word").as_string("end_word");
  const std::string answer = upper(text);
  const std::vector<std::string_view> steps = split(answer, ","), reference = split(puzzle.reference, ",");
  if (steps.size() < 2 || steps.front() != start || steps.back() != end) return 0;
  int unknown = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].size() != end.size()) return 0;
    if (!puzzle.words.contains(std::string(steps[i])) &&
        std::find(reference.begin(), reference.end(), steps[i]) == reference.end())
      ++unknown;
    if (i == 0) continue;
    int changed = 0;
    for (size_t k = 0; k < end.size(); ++k) changed += steps[i][k] != steps[i - 1][k];
    if (changed != 1) return 0;
  }
  return std::ldexp(1.0, -unknown);
}

[[maybe_unused]] const bool added =
    puzzle_judges().add("palindrome_generation", palindrome) && puzzle_judges().add("word_ladder", word_ladder);

}  // namespace

}  // namespace hone
