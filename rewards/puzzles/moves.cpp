// Judges for puzzles whose answer is a sequence of moves: jugs, tower_of_hanoi, shortest_path, knight_swap. They
// execute the moves.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <vector>

#include "rewards/answers/answer_text.h"
#include "rewards/answers/text.h"
#include "rewards/puzzles/puzzle.h"

namespace hone {

namespace {

// Reads a JSON list of strings; nothing if the text is anything else.
std::optional<std::vector<std::string>> list_of_strings(std::string_view text) {
  try {
    const Json list = parse_json(text, "answer");
    if (!list.is_array()) return std::nullopt;
    std::vector<std::string> out;
    for (const Json& one : list.as_array()) {
      if (!one.is_string()) return std::nullopt;
      out.push_back(one.as_string());
    }
    return out;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Executes "fill A", "empty B", "pour A->B" from empty jugs. Solved if one jug holds the target at the end.
double jugs(const Puzzle& puzzle, std::string_view text) {
  const Json& setup = puzzle.metadata.at("puzzle");
  const JsonArray& capacities = setup.at("jug_capacities").as_array("jug_capacities");
  const auto moves = list_of_strings(text);
  if (!moves) return 0;
  std::vector<int64_t> held(capacities.size());
  const auto jug = [&](std::string_view name) {
    return name.size() == 1 ? static_cast<size_t>(name[0] - 'A') : held.size();
  };
  for (const std::string& move : *moves) {
    const size_t space = move.find(' ');
    if (space == std::string::npos) return 0;
    const std::string_view verb = std::string_view(move).substr(0, space),
                           rest = trimmed(std::string_view(move).substr(space));
    const size_t arrow = verb == "pour" ? rest.find("->") : std::string_view::npos;
    const size_t from = jug(rest.substr(0, arrow)),
                 to = arrow == std::string_view::npos ? from : jug(rest.substr(arrow + 2));
    if (from >= held.size() || to >= held.size()) return 0;
    if (verb == "fill") {
      held[from] = capacities[from].as_int("jug_capacities");
    } else if (verb == "empty") {
      held[from] = 0;
    } else if (verb == "pour" && from != to) {
      const int64_t amount = std::min(held[from], capacities[to].as_int("jug_capacities") - held[to]);
      held[from] -= amount;
      held[to] += amount;
    } else {
      return 0;
    }
  }
  return std::find(held.begin(), held.end(), setup.at("target").as_int("target")) != held.end() ? 1 : 0;
}

// Executes lines "Move disk 2 from Peg 1 to Peg 3".
double tower_of_hanoi(const Puzzle& puzzle, std::string_view text) {
  const auto setting = [&](const char* name) { return puzzle.metadata.at(name).as_int(name); };
  const int64_t num_disks = setting("num_disks"), num_pegs = setting("num_pegs"), target = setting("target_peg"),
                start = setting("start_peg");
  HONE_CHECK(num_disks > 0 && num_disks <= 64 && num_pegs > 0 && num_pegs <= 64 && std::min(start, target) >= 1 &&
                 std::max(start, target) <= num_pegs,
             "tower_of_hanoi: ", num_disks, " disks from peg ", start, " to ", target, " of ", num_pegs);
  std::vector<std::vector<int64_t>> pegs(static_cast<size_t>(num_pegs) +
                                         1);  // disks from the bottom up; peg 0 is unused
  for (int64_t disk = num_disks; disk > 0; --disk) pegs[static_cast<size_t>(start)].push_back(disk);
  const auto moves = words_by_line(text);
  for (const auto& words : moves) {
    constexpr std::string_view form[] = {"move", "disk", "", "from", "peg", "", "to", "peg", ""};
    if (words.size() != std::size(form)) return 0;
    int64_t number[3] = {};
    for (size_t i = 0, found = 0; i < words.size(); ++i) {
      if (form[i].empty()) {
        const auto [stop, error] = std::from_chars(words[i].data(), words[i].data() + words[i].size(), number[found++]);
        if (error != std::errc() || stop != words[i].data() + words[i].size()) return 0;
      } else if (lower(words[i]) != form[i]) {
        return 0;
      }
    }
    const auto [disk, from, to] = number;
    if (from < 1 || from > num_pegs || to < 1 || to > num_pegs) return 0;
    auto &source = pegs[static_cast<size_t>(from)], &goal = pegs[static_cast<size_t>(to)];
    if (source.empty() || source.back() != disk || (!goal.empty() && goal.back() < disk)) return 0;
    source.pop_back();
    goal.push_back(disk);
  }
  if (pegs[static_cast<size_t>(target)].size() != static_cast<size_t>(num_disks)) return 0;
  return detour_score(static_cast<size_t>(setting("solution_length")), moves.size());
}

// Executes directions, separated by spaces, from '*' to '#' around 'X'. A path longer than the reference's scores half.
// "infeasible" is right if there is no path.
double shortest_path(const Puzzle& puzzle, std::string_view text) {
  const JsonArray& matrix = puzzle.metadata.at("matrix").as_array("matrix");
  const size_t fewest = puzzle.metadata.at("solution").as_array("solution").size();
  if (fewest == 0 || same_answer("infeasible", text)) return fewest == 0 && same_answer("infeasible", text) ? 1 : 0;
  const auto cell = [&](size_t r, size_t c) -> std::string_view {
    if (r >= matrix.size() || c >= matrix[r].as_array("matrix row").size()) return "X";
    return matrix[r].as_array("matrix row")[c].as_string("cell");
  };
  size_t row = 0, column = 0, steps = 0;
  for (size_t r = 0; r < matrix.size(); ++r)
    for (size_t c = 0; c < matrix[r].as_array("matrix row").size(); ++c)
      if (cell(r, c) == "*") row = r, column = c;
  for (const auto& words : words_by_line(text))
    for (const std::string_view word : words) {
      // A step off the upper or left edge wraps to an index that is out of range.
      if (word == "up")
        --row;
      else if (word == "down")
        ++row;
      else if (word == "left")
        --column;
      else if (word == "right")
        ++column;
      else
        return 0;
      if (cell(row, column) == "X") return 0;
      ++steps;
    }
  if (cell(row, column) != "#") return 0;
  return steps <= fewest ? 1 : 0.5;
}

// Executes a JSON list of alternating moves "w,A1,B3" until white and black have swapped places. "No" is right if that
// is impossible.
double knight_swap(const Puzzle& puzzle, std::string_view text) {
  const bool possible = puzzle.metadata.at("is_possible").as_bool("is_possible"), says_no = same_answer("No", text);
  if (!possible || says_no) return !possible && says_no ? 1 : 0;
  const auto moves = list_of_strings(text);
  if (!moves) return 0;
  const Json& board = puzzle.metadata.at("board");
  std::map<std::string, std::string, std::less<>> begin;
  for (const auto& [square, piece] : puzzle.metadata.at("pieces").as_object("pieces"))
    if (!piece.is_null()) begin[square] = piece.as_string("piece");
  auto now = begin;
  std::string turn = puzzle.metadata.at("start_turn").as_string("start_turn");
  for (const std::string& move : *moves) {
    const std::vector<std::string_view> parts = split(move, ",");
    if (parts.size() != 3 || parts[0] != turn) return 0;
    const auto piece = now.find(parts[1]);
    const Json* reached = board.find(parts[1]);
    if (piece == now.end() || piece->second != turn || !reached || now.contains(parts[2])) return 0;
    const JsonArray& squares = reached->as_array("board");
    if (std::none_of(squares.begin(), squares.end(),
                     [&](const Json& square) { return square.as_string("square") == parts[2]; }))
      return 0;
    now.erase(piece);
    now[std::string(parts[2])] = turn;
    turn = turn == "w" ? "B" : "w";
  }
  for (const auto& [square, piece] : begin)
    if (const auto there = now.find(square); there == now.end() || there->second == piece) return 0;
  return detour_score(puzzle.metadata.at("solution").as_array("solution").size(), moves->size());
}

[[maybe_unused]] const bool added =
    puzzle_judges().add("jugs", jugs) && puzzle_judges().add("tower_of_hanoi", tower_of_hanoi) &&
    puzzle_judges().add("shortest_path", shortest_path) && puzzle_judges().add("knight_swap", knight_swap);

}  // namespace

}  // namespace hone
