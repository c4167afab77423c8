#include <map>
#include <set>

#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "rewards/puzzles/puzzle.h"
#include "rewards/reward.h"
#include "tests/support/cpu_time.h"
#include "tests/support/support.h"

namespace hone {

static double score_of(const std::string& family, const std::string& metadata, const std::string& reference,
                       const std::string& answer, const std::string& spec = "reasoning_gym") {
  Task task{.id = "t", .prompt = "", .messages = {}, .answer = reference, .columns = {}};
  task.columns.set("task", family);
  task.columns.set("metadata", parse_json(metadata, "metadata"));
  return make_reward(spec)
      ->score(task, {.ids = {}, .text = "<answer>" + answer + "</answer>", .finish_reason = "stop"})
      .score;
}

TEST(ReasoningGym, GridsFollowTheirRules) {
  const std::string kakurasu = R"({"row_sums": [1, 2], "col_sums": [1, 2]})";
  EXPECT_EQ(score_of("kakurasu", kakurasu, "", "1 0\n0 1"), 1);
  EXPECT_EQ(score_of("kakurasu", kakurasu, "", "0 1\n1 0"), 0);
  EXPECT_EQ(score_of("kakurasu", kakurasu, "", "1 0"), 0);
  const std::string queens = R"({"puzzle": [["_","_","_","_"],["_","_","_","Q"],["_","_","_","_"],["_","_","_","_"]]})";
  EXPECT_EQ(score_of("n_queens", queens, "", "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ Q _"), 1);
  EXPECT_EQ(score_of("n_queens", queens, "", "_ _ Q _\nQ _ _ _\n_ _ _ Q\n_ Q _ _"),
            0);                                                                          // the given queen is missing
  EXPECT_EQ(score_of("n_queens", queens, "", "Q _ _ _\n_ _ _ Q\n_ Q _ _\n_ _ Q _"), 0);  // two on a diagonal
  EXPECT_EQ(score_of("n_queens", queens, "", "_ Q _ _\n_ _ _ Q\nQ _ _ _\n_ _ _ _"), 0);
  const std::string futoshiki = R"({"puzzle": [[0,0],[0,0]], "constraints": [[0,0,0,1,"<"]]})";
  EXPECT_EQ(score_of("futoshiki", futoshiki, "", "1 < 2\n\n2   1"), 1);
  EXPECT_EQ(score_of("futoshiki", futoshiki, "", "2   1\n\n1   2"), 0);
  EXPECT_EQ(score_of("futoshiki", futoshiki, "", "1 < 1\n\n2   2"), 0);
  EXPECT_EQ(score_of("futoshiki", R"({"puzzle": [[2,0],[0,0]], "constraints": []})", "", "1 2\n2 1"), 0);
}

TEST(ReasoningGym, MovesArePlayedOut) {
  const std::string jugs = R"({"puzzle": {"jug_capacities": [3, 5], "target": 4}})";
  EXPECT_EQ(score_of("jugs", jugs, "", R"(["fill B", "pour B->A", "empty A", "pour B->A", "fill B", "pour B->A"])"), 1);
  EXPECT_EQ(score_of("jugs", jugs, "", R"(["fill B", "pour B->A"])"), 0);
  EXPECT_EQ(score_of("jugs", jugs, "", R"(["fill C"])"), 0);
  EXPECT_EQ(score_of("jugs", jugs, "", "fill B"), 0);
  const std::string hanoi = R"({"num_disks": 2, "num_pegs": 3, "start_peg": 1, "target_peg": 3, "solution_length": 3})";
  EXPECT_EQ(
      score_of("tower_of_hanoi", hanoi, "",
               "Move disk 1 from Peg 1 to Peg 2\nMove disk 2 from Peg 1 to Peg 3\nMove disk 1 from Peg 2 to Peg 3"),
      1);
  EXPECT_EQ(score_of("tower_of_hanoi", hanoi, "",
                     "Move disk 1 from Peg 1 to Peg 3\nMove disk 1 from Peg 3 to Peg 2\nMove disk 2 from Peg 1 to Peg "
                     "3\nMove disk 1 from Peg 2 to Peg 3"),
            0.75);
  EXPECT_EQ(score_of("tower_of_hanoi", hanoi, "", "Move disk 2 from Peg 1 to Peg 3"), 0);
  EXPECT_EQ(score_of("tower_of_hanoi", hanoi, "", "Move disk 1 from Peg 1 to Peg 9"), 0);
  EXPECT_EQ(score_of("tower_of_hanoi", hanoi, "", "Move disk 1 from Peg 1 to Peg 3\nMove disk 2 from Peg 1 to Peg 3"),
            0);
  const std::string path = R"({"matrix": [["*","O"],["O","#"]], "solution": ["right", "down"]})";
  EXPECT_EQ(score_of("shortest_path", path, "right down", "down right"), 1);
  EXPECT_EQ(score_of("shortest_path", path, "right down", "right left right down"), 0.5);
  EXPECT_EQ(score_of("shortest_path", path, "right down", "up"), 0);
  EXPECT_EQ(score_of("shortest_path", path, "right down", "right"), 0);
  EXPECT_EQ(score_of("shortest_path", path, "right down", "infeasible"), 0);
  EXPECT_EQ(score_of("shortest_path", R"({"matrix": [["*","X","#"]], "solution": []})", "infeasible", "infeasible"), 1);
  EXPECT_EQ(score_of("shortest_path", R"({"matrix": [["*","X","#"]], "solution": []})", "infeasible", "right right"),
            0);
  const std::string knights =
      R"({"board": {"A1": ["B3"], "B3": ["A1", "C1"], "C1": ["B3"]}, "pieces": {"A1": "w", "B3": null, "C1": "B"},
                                  "start_turn": "w", "is_possible": false, "solution": null})";
  EXPECT_EQ(score_of("knight_swap", knights, "", "No"), 1);
  EXPECT_EQ(score_of("knight_swap", knights, "", R"(["w,A1,B3"])"), 0);
}

TEST(ReasoningGym, WordsAndLogic) {
  EXPECT_EQ(score_of("palindrome_generation", R"({"letters": ["n", "y", "n"]})", "nyn", "NYN"), 1);
  EXPECT_EQ(score_of("palindrome_generation", R"({"letters": ["n", "y", "n"]})", "nyn", "nynn"), 0);
  EXPECT_EQ(score_of("palindrome_generation", R"({"letters": ["n", "y", "n"]})", "nyn", "nnn"), 0);
  const std::string ladder = R"({"start_word": "COLD", "end_word": "CARD"})";
  EXPECT_EQ(score_of("word_ladder", ladder, "COLD,CORD,CARD", "cold,cord,card"), 1);
  EXPECT_EQ(score_of("word_ladder", ladder, "COLD,CORD,CARD", "COLD,CALD,CARD"), 0.5);
  EXPECT_EQ(score_of("word_ladder", ladder, "COLD,CORD,CARD", "COLD,CARD"), 0);
  EXPECT_EQ(score_of("word_ladder", ladder, "COLD,CORD,CARD", "CARD"), 0);
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "words", "cald\n");
  EXPECT_EQ(score_of("word_ladder", ladder, "COLD,CORD,CARD", "COLD,CALD,CARD",
                     "{kind = 'reasoning_gym', words = '" + (folder.path() / "words").string() + "'}"),
            1);
  const std::string logic = R"({"premises": ["P → Q", "P"], "variables": ["P", "Q"]})";
  EXPECT_EQ(score_of("propositional_logic", logic, "", "(P ∧ Q)"), 1);
  EXPECT_EQ(score_of("propositional_logic", logic, "", "P & Q"), 1);
  EXPECT_EQ(score_of("propositional_logic", logic, "", "Q"), 0.25);
  EXPECT_EQ(score_of("propositional_logic", logic, "", "P ∨ ¬P"), 0.25);
  EXPECT_EQ(score_of("propositional_logic", logic, "", "¬Q"), 0);
  EXPECT_EQ(score_of("propositional_logic", logic, "", "(P ∧ Q"), 0);
  EXPECT_EQ(score_of("propositional_logic", logic, "", "R"), 0);
  EXPECT_EQ(score_of("propositional_logic", logic, "", "P ∨ Q ∧ ¬Q ∧ P"), 1);  // ∧ binds tighter than ∨
  const std::string graph = R"({"puzzle": {"vertices": [0, 1], "edges": [[0, 1]], "color_options": [1, 2]}})";
  EXPECT_EQ(score_of("graph_color", graph, "", R"({"0": 1, "1": 2})"), 1);
  EXPECT_EQ(score_of("graph_color", graph, "", R"({"0": 1, "1": 1})"), 0);
  EXPECT_EQ(score_of("graph_color", graph, "", R"({"0": 1, "1": 3})"), 0);
  EXPECT_EQ(score_of("graph_color", graph, "", R"({"0": 1})"), 0);
  EXPECT_EQ(score_of("graph_color", graph, "", "[1, 2]"), 0);
}

TEST(ReasoningGym, NumbersInSeveralSpellings) {
  EXPECT_EQ(score_of("power_function", "{}", "118305.69106057101", "1.18e+5"), 1);
  EXPECT_EQ(score_of("power_function", "{}", "118305.69106057101", "1.19e+5"), 0);
  EXPECT_EQ(score_of("coin_flip", "{}", "0.375", "3/8"), 1);
  EXPECT_EQ(score_of("coin_flip", "{}", "0.375", "0.37"), 0);
  EXPECT_EQ(score_of("number_format", "{}", "500283937.115", "5.00283937115e+08"), 1);
  EXPECT_EQ(score_of("number_format", "{}", "500283937.115", "500,283,937.115"), 1);
  EXPECT_EQ(score_of("number_format", "{}", "500283937.115", "500283938.115"), 0);
  EXPECT_EQ(score_of("dice", "{}", "6311/8640", "\\frac{6311}{8640}"), 1);
  EXPECT_EQ(score_of("dice", "{}", "1/2", "2/4"), 0);
  EXPECT_EQ(score_of("fraction_simplification", "{}", "$\\dfrac{1}{33}$", "1/33"), 1);
  EXPECT_EQ(score_of("complex_arithmetic", "{}", "-4.0 - 8.0i", "-4 - 8i"), 1);
  EXPECT_EQ(score_of("complex_arithmetic", "{}", "-4.0 - 8.0i", "-4 + 8i"), 0);
  EXPECT_EQ(score_of("prime_factorization", "{}", "2 × 2 × 373", "373*2*2"), 1);
  EXPECT_EQ(score_of("prime_factorization", "{}", "2 × 2 × 373", "4 × 373"), 0);
  EXPECT_EQ(score_of("cryptarithm", "{}", "A=1,B=2", "B = 2, A = 1"), 1);
  EXPECT_EQ(score_of("cryptarithm", "{}", "A=1,B=2", "A=2,B=1"), 0);
}

TEST(ReasoningGym, AnUnknownFamilyIsComparedByText) {
  EXPECT_EQ(score_of("new_family", "{}", "Yes", "yes"), 1);
  EXPECT_EQ(score_of("new_family", "{}", "Yes", "no"), 0);
  EXPECT_THROW(score_of("new_family", "{}", "", "no"), Error);
  EXPECT_THROW(score_of("sudoku", "{}", "", "1"), Error);
}

// Returns a right answer for a row whose reference is null.
static std::string solution(const Json& row) {
  const Json& metadata = row.at("metadata");
  return row.at("task").as_string() == "graph_color" ? metadata.at("possible_answer").dump()
                                                     : metadata.at("example_answer").as_string();
}

TEST(ReasoningGym, EveryPublishedAnswerIsRightAndItsNeighborsAreNot) {
  const auto reward = make_reward("reasoning_gym");
  std::map<std::string, int> rows, wrong_accepted;
  int logic_fallback = 0;
  for (const char* name : {"data/rl/reasoning_gym_test.jsonl.gz", "data/rl/reasoning_gym_train.jsonl.gz"}) {
    HONE_SHARED_OR_SKIP(path, name);
    std::string before, family_before;
    read_jsonl(path, [&](const Json& row, int64_t line) {
      const std::string& family = row.at("task").as_string();
      const std::string answer = row.at("answer").is_null() ? solution(row) : row.at("answer").as_string();
      const Task task{.id = std::to_string(line),
                      .prompt = "",
                      .messages = {},
                      .answer = row.at("answer").is_null() ? "" : answer,
                      .columns = row};
      const auto score = [&](const std::string& text) {
        return reward->score(task, {.ids = {}, .text = text, .finish_reason = "stop"}).score;
      };
      ++rows[family];
      // The generator's fallback answer need not follow from the premises.
      const double own = score("<think>hm</think>\n<answer>" + answer + "</answer>");
      if (family == "propositional_logic" && answer.size() == 1)
        ++logic_fallback;
      else
        EXPECT_EQ(own, 1) << row.dump();
      if (family == family_before && before != answer && score("<answer>" + before + "</answer>") == 1)
        ++wrong_accepted[family];
      before = answer;
      family_before = family;
    });
  }
  EXPECT_EQ(rows.size(), 68u);
  for (const auto& [family, count] : rows) EXPECT_EQ(count, 200) << family;
  EXPECT_LT(logic_fallback, 20);
  // In families with several right answers another row's answer may be right.
  const std::set<std::string> many = {"propositional_logic", "graph_color", "coin_flip", "n_queens", "shortest_path"};
  for (const auto& [family, count] : wrong_accepted) EXPECT_TRUE(many.contains(family)) << family << " " << count;
}

TEST(ReasoningGym, HostileAnswersOfEveryFamilyAreJudgedInTime) {
  HONE_SHARED_OR_SKIP(path, "data/rl/reasoning_gym_test.jsonl.gz");
  const auto reward = make_reward("reasoning_gym");
  std::set<std::string> judged;
  read_jsonl(path, [&](const Json& row, int64_t) {
    const std::string& family = row.at("task").as_string();
    if (!puzzle_judges().contains(family) && family != "ab") return;  // the other families are compared as ab is
    if (!judged.insert(family).second) return;
    const Task task{.id = family,
                    .prompt = "",
                    .messages = {},
                    .answer = row.at("answer").is_null() ? "" : row.at("answer").as_string(),
                    .columns = row};
    for (const char* unit : {"[",
                             "{",
                             "(",
                             "¬",
                             "P∨",
                             "\"",
                             "1 ",
                             "1\n",
                             ",",
                             "CARD,",
                             "Q ",
                             "up ",
                             "Move disk 1 from Peg 1 to Peg 2\n",
                             "\\frac{",
                             "9",
                             "1e9",
                             "=",
                             "×",
                             "\xff",
                             "[\"fill A\","}) {
      std::string text = "<answer>";
      while (text.size() < longest_puzzle_answer - 64) text += unit;
      const CpuTime time;
      const double score = reward->score(task, {.ids = {}, .text = text, .finish_reason = "length"}).score;
      EXPECT_LT(score, 1) << family << " " << unit;
      EXPECT_GE(score, 0) << family << " " << unit;
      EXPECT_LT(time.seconds(), 1.0) << family << " " << unit;
    }
  });
  for (const std::string& family : puzzle_judges().names()) EXPECT_TRUE(judged.contains(family)) << family;
}

}  // namespace hone
