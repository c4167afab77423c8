// Judges for puzzles whose answer is a grid: sudoku, futoshiki, kakurasu, n_queens.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "rewards/answers/answer_text.h"
#include "rewards/answers/text.h"
#include "rewards/puzzles/puzzle.h"

namespace hone {

namespace {

using Grid = std::vector<std::vector<int64_t>>;

Grid grid_of(const Json& rows) {
  Grid out;
  for (const Json& row : rows.as_array("puzzle")) {
    out.emplace_back();
    for (const Json& cell : row.as_array("puzzle's row")) out.back().push_back(cell.as_int("puzzle's cell"));
  }
  return out;
}

// Reads one-digit numbers separated by spaces, line by line. Texts in `marks` are skipped.
std::optional<Grid> read_grid(std::string_view text, std::initializer_list<std::string_view> marks = {}) {
  Grid out;
  for (const auto& words : words_by_line(text)) {
    std::vector<int64_t> row;
    for (const std::string_view word : words) {
      if (std::find(marks.begin(), marks.end(), word) != marks.end()) continue;
      if (word.size() != 1 || !is_digit(word[0])) return std::nullopt;
      row.push_back(word[0] - '0');
    }
    if (!row.empty()) out.push_back(std::move(row));
  }
  return out;
}

bool same_shape(const Grid& a, const Grid& b) {
  if (a.size() != b.size()) return false;
  for (size_t r = 0; r < a.size(); ++r)
    if (a[r].size() != b[r].size()) return false;
  return true;
}

// Returns true if each row and column has 1..n once and the clues (not 0) are unchanged; n is at most 9.
bool is_latin_square(const Grid& answer, const Grid& clues) {
  const size_t n = clues.size();
  HONE_CHECK(n > 0 && n <= 9, "the puzzle has ", n, " rows; 1 to 9 are allowed");
  for (const auto& row : clues)
    HONE_CHECK(row.size() == n, "a row of the puzzle has ", row.size(), " members; its grid has ", n, " rows");
  if (!same_shape(answer, clues)) return false;
  for (size_t i = 0; i < n; ++i) {
    unsigned row = 0, column = 0;
    for (size_t j = 0; j < n; ++j) {
      row |= 1u << answer[i][j];
      column |= 1u << answer[j][i];
      if (clues[i][j] != 0 && clues[i][j] != answer[i][j]) return false;
    }
    if (const unsigned all = (1u << (n + 1)) - 2; row != all || column != all) return false;
  }
  return true;
}

double sudoku(const Puzzle& puzzle, std::string_view text) {
  const Grid clues = grid_of(puzzle.metadata.at("puzzle"));
  const auto answer = read_grid(text);
  HONE_CHECK(clues.size() == 9, "the sudoku has ", clues.size(), " rows; it must have 9");
  if (!answer || !is_latin_square(*answer, clues)) return 0;
  for (size_t box = 0; box < 9; ++box) {
    unsigned seen = 0;
    for (size_t k = 0; k < 9; ++k) seen |= 1u << (*answer)[box / 3 * 3 + k / 3][box % 3 * 3 + k % 3];
    if (seen != 0x3fe) return 0;
  }
  return 1;
}

double futoshiki(const Puzzle& puzzle, std::string_view text) {
  const Grid clues = grid_of(puzzle.metadata.at("puzzle"));
  const auto answer = read_grid(text, {"<", ">", "∧", "∨", "^", "v"});
  if (!answer || !is_latin_square(*answer, clues)) return 0;
  for (const Json& constraint :
       puzzle.metadata.at("constraints").as_array("constraints")) {  // [row, column, row, column, "<" or ">"]
    const JsonArray& c = constraint.as_array("constraint");
    HONE_CHECK(c.size() == 5, "a futoshiki constraint has ", c.size(), " members; it must have 5");
    int64_t side[2] = {};
    for (size_t k = 0; k < 2; ++k) {
      const int64_t row = c[2 * k].as_int("row"), column = c[2 * k + 1].as_int("column"),
                    n = static_cast<int64_t>(clues.size());
      HONE_CHECK(row >= 0 && row < n && column >= 0 && column < n,
                 "a futoshiki constraint names a cell outside the board of ", n, " rows");
      side[k] = (*answer)[static_cast<size_t>(row)][static_cast<size_t>(column)];
    }
    if (c[4].as_string("sign") == "<" ? side[0] >= side[1] : side[0] <= side[1]) return 0;
  }
  return 1;
}

// A 1 adds its column number (from 1) to its row's sum and its row number to its column's sum.
double kakurasu(const Puzzle& puzzle, std::string_view text) {
  const JsonArray &rows = puzzle.metadata.at("row_sums").as_array("row_sums"),
                  &columns = puzzle.metadata.at("col_sums").as_array("col_sums");
  const auto answer = read_grid(text);
  if (!answer || answer->size() != rows.size()) return 0;
  std::vector<int64_t> column_sums(columns.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    int64_t sum = 0;
    const std::vector<int64_t>& row = (*answer)[r];
    if (row.size() != columns.size()) return 0;
    for (size_t c = 0; c < row.size(); ++c) {
      if (row[c] > 1) return 0;
      sum += row[c] * static_cast<int64_t>(c + 1);
      column_sums[c] += row[c] * static_cast<int64_t>(r + 1);
    }
    if (sum != rows[r].as_int("row_sums")) return 0;
  }
  for (size_t c = 0; c < columns.size(); ++c)
    if (column_sums[c] != columns[c].as_int("col_sums")) return 0;
  return 1;
}

double n_queens(const Puzzle& puzzle, std::string_view text) {
  const JsonArray& board = puzzle.metadata.at("puzzle").as_array("puzzle");
  const auto answer = words_by_line(text);
  const size_t n = board.size();
  if (answer.size() != n) return 0;
  std::vector<bool> columns(n), rising(2 * n), falling(2 * n);
  for (size_t r = 0; r < n; ++r) {
    const JsonArray& row = board[r].as_array("puzzle's row");
    if (answer[r].size() != n || row.size() != n) return 0;
    size_t queens = 0;
    for (size_t c = 0; c < n; ++c) {
      const std::string_view cell = answer[r][c];
      if (cell == "_" && row[c].as_string("cell") != "Q") continue;
      if (cell != "Q" || ++queens > 1 || columns[c] || rising[r + c] || falling[r + n - c]) return 0;
      columns[c] = rising[r + c] = falling[r + n - c] = true;
    }
    if (queens != 1) return 0;
  }
  return 1;
}

[[maybe_unused]] const bool added =
    puzzle_judges().add("sudoku", sudoku) && puzzle_judges().add("futoshiki", futoshiki) &&
    puzzle_judges().add("kakurasu", kakurasu) && puzzle_judges().add("n_queens", n_queens);

}  // namespace

}  // namespace hone
