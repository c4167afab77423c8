// The "arc_grid" reward: ARC-AGI's output grid, cell by cell. A grid is JSON ([[1, 0], [0, 1]]) or lines of digits with
// or without spaces or commas between them. The completion's grid is its last one. parts: shape, cells (the share of
// right cells; 0 if the shape is wrong).
#include <algorithm>
#include <optional>

#include "core/io/json.h"
#include "rewards/answers/text.h"
#include "rewards/reward.h"

namespace hone {

namespace {

using Grid = std::vector<std::string>;  // a digit for each cell

constexpr size_t max_cells = size_t{1} << 16;

bool is_rectangle(const Grid& grid) {
  return !grid.empty() && !grid.front().empty() && std::all_of(grid.begin(), grid.end(), [&](const std::string& row) {
    return row.size() == grid.front().size();
  });
}

// The digits of a line that has nothing but digits, spaces, commas, bars and brackets; "" for any other line. Digits
// are either all separated or all joined: "12 3" has a number of two digits, which is no cell.
std::string digits_of(std::string_view line) {
  std::string out;
  size_t joined = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (is_digit(line[i])) {
      joined += i > 0 && is_digit(line[i - 1]);
      out.push_back(line[i]);
    } else if (std::string_view(" \t\r,|[]").find(line[i]) == std::string_view::npos) {
      return "";
    }
  }
  return joined == 0 || joined + 1 == out.size() ? out : "";
}

// Puts each row in brackets ("[1, 0]", also over several lines) on a line of its own.
std::string one_row_a_line(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool opens_grid = text.substr(i).starts_with("[[");
    if (opens_grid) out.push_back('\n');
    const size_t end = text[i] == '[' ? text.find_first_not_of("0123456789, \t\r\n", i + 1) : std::string_view::npos;
    if (end == std::string_view::npos || text[end] != ']') {
      out.push_back(text[i]);
      continue;
    }
    for (; i < end; ++i) out.push_back(text[i] == '\n' ? ' ' : text[i]);
    out.push_back(']');
    const size_t next = text.find_first_not_of(" \t\r", end + 1);
    if (next != std::string_view::npos && text[next] != '\n') out.push_back('\n');
  }
  return out;
}

// The last block of lines that are rows of equal length.
std::optional<Grid> last_grid(std::string_view text) {
  const std::string lines = one_row_a_line(text);
  std::optional<Grid> out;
  Grid current;
  size_t cells = 0;
  const auto close = [&] {
    if (is_rectangle(current)) out = current;
    current.clear();
    cells = 0;
  };
  for (size_t begin = 0; begin <= lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = trimmed(std::string_view(lines).substr(begin, end - begin));
    begin = end + 1;
    if (line.find_first_not_of(" ,[]") == std::string_view::npos && !line.empty()) {  // brackets between rows
      if (line.find("]]") != std::string_view::npos || line == "]") close();
      continue;
    }
    const std::string row = digits_of(line);
    cells += row.size();
    if (row.empty() || (!current.empty() && row.size() != current.front().size()) || line.starts_with("[[")) close();
    if (!row.empty() && cells <= max_cells) current.push_back(row);
  }
  close();
  return out;
}

class ArcGrid : public Reward {
 public:
  void fields(Fields& f) override {
    f("partial", partial_, "score the share of right cells of a grid of the right shape");
  }
  RewardScore score(const Task& task, const Completion& completion) const override {
    const std::optional<Grid> expected = last_grid(task.answer);
    if (!expected) return {.note = "the row's answer is not a grid", .skipped = true};
    const std::optional<Grid> given = last_grid(completion.text);
    RewardScore out;
    out.parts = {{"shape", 0}, {"cells", 0}};
    if (!given) {
      out.note = "no grid found";
      return out;
    }
    if (given->size() != expected->size() || given->front().size() != expected->front().size()) {
      out.note = concat("expected ", expected->size(), " x ", expected->front().size(), " cells, got ", given->size(),
                        " x ", given->front().size());
      return out;
    }
    size_t right = 0, all = 0;
    for (size_t r = 0; r < expected->size(); ++r)
      for (size_t c = 0; c < (*expected)[r].size(); ++c, ++all) right += (*given)[r][c] == (*expected)[r][c];
    const double share = static_cast<double>(right) / static_cast<double>(all);
    out.parts = {{"shape", 1}, {"cells", share}};
    out.score = partial_ || right == all ? share : 0;
    if (right < all) out.note = concat(all - right, " of ", all, " cells are wrong");
    return out;
  }
  bool reads_answers(const Task&) const override { return true; }
  std::optional<std::string> read_answer(const Task&, const Completion& completion) const override {
    const std::optional<Grid> grid = last_grid(completion.text);
    if (!grid) return std::nullopt;
    std::string out;
    for (const std::string& row : *grid) out += row + "\n";
    return out;
  }

 private:
  bool partial_ = false;
};

[[maybe_unused]] const bool added = rewards().add("arc_grid", [] { return std::unique_ptr<Reward>(new ArcGrid); });

}  // namespace

}  // namespace hone
