// The score of each reward for small completions.
#include <algorithm>

#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone {

static RewardScore judge(const std::string& spec, const std::string& answer, const std::string& text,
                         const std::string& prompt = "") {
  Task task{.id = "t", .prompt = prompt, .messages = {}, .answer = answer, .columns = {}};
  return make_reward(spec)->score(task, {.ids = {}, .text = text, .finish_reason = "stop"});
}

static double score_of(const std::string& spec, const std::string& answer, const std::string& text,
                       const std::string& prompt = "") {
  return judge(spec, answer, text, prompt).score;
}

TEST(Exact, SpacesAndCaseFollowTheKeys) {
  EXPECT_EQ(score_of("exact", "42", " 42\n"), 1);
  EXPECT_EQ(score_of("exact", "42", "43"), 0);
  EXPECT_EQ(score_of("{kind = 'exact', trim = false}", "42", "42 "), 0);
  EXPECT_EQ(score_of("exact", "Yes", "yes"), 0);
  EXPECT_EQ(score_of("{kind = 'exact', ignore_case = true}", "Yes", "yes"), 1);
  EXPECT_EQ(judge("exact", "42", "43").note, "expected '42'");
}

TEST(Number, TheLastNumberOrTheOneAfterAMarker) {
  EXPECT_EQ(score_of("number", "72", "She sold 48 and then 24, 72 in all."), 1);
  EXPECT_EQ(score_of("number", "72", "72 clips, of which 24 in May"), 0);
  EXPECT_EQ(score_of("number", "Half of 48 is 24.\n#### 24", "#### 24"), 1);
  EXPECT_EQ(score_of("number", "24", "The answer is 24. Check: 24 + 24 = 48"), 1);
  EXPECT_EQ(score_of("number", "1200", "#### 1,200"), 1);
  EXPECT_EQ(score_of("number", "1,200.50", "$1200.5"), 1);
  EXPECT_EQ(score_of("number", "-3", "it is -3."), 1);
  EXPECT_EQ(score_of("number", "3", "5-3"), 0);  // the end of a range or an operand of a minus is not an answer
  EXPECT_EQ(score_of("number", "-3", "5-3"), 0);
  EXPECT_EQ(score_of("number", "2", "AZYUK2A"), 0);
  EXPECT_EQ(judge("number", "2", "two").note, "no number found");
  EXPECT_EQ(score_of("{kind = 'number', require_marker = true}", "2", "so 2"), 0);
  EXPECT_EQ(score_of("{kind = 'number', tolerance = 0.01}", "3.14159", "3.1415"), 1);
  EXPECT_EQ(score_of("number", "3.14159", "3.1415"), 0);
  EXPECT_EQ(score_of("number", "123456789012345678901234567890", "123456789012345678901234567891"), 0);
  EXPECT_THROW(score_of("number", "none", "1"), Error);
}

TEST(Number, ReadsAsThePublishedParserDid) {
  HONE_SHARED_OR_SKIP(path, "vectors/a5/parsers.json");
  const Json parsers = parse_json(read_file(path), path.string());
  for (const Json& one : parsers.at("parse_gsm8k_response").as_array()) {
    const bool found = !one.at("expected").is_null();
    const RewardScore score =
        judge("number", found ? one.at("expected").as_string() : "1", one.at("output").as_string());
    EXPECT_EQ(score.score, found ? 1 : 0) << one.dump();
    EXPECT_EQ(score.note == "no number found", !found) << one.dump();
  }
  for (const Json& one : parsers.at("parse_mmlu_response").as_array()) {
    const bool found = !one.at("expected").is_null();
    const RewardScore score =
        judge("choice", found ? one.at("expected").as_string() : "A", one.at("output").as_string());
    EXPECT_EQ(score.score, found ? 1 : 0) << one.dump();
    EXPECT_EQ(score.note == "no choice found", !found) << one.dump();
  }
}

TEST(Choice, FindsTheLetter) {
  for (const char* text : {"B", "(B)", "B.", "b", "**B**", "\\boxed{B}", "The answer is (B).", "Answer: B",
                           "the answer is **B**", "B. Because 7 is prime", "The answer is \\text{B}"})
    EXPECT_EQ(score_of("choice", "B", text), 1) << text;
  for (const char* text : {"C", "The answer is a number", "Because", "The answer is Boron", ""})
    EXPECT_EQ(score_of("choice", "B", text), 0) << text;
  EXPECT_EQ(judge("choice", "B", "The answer is a number").note, "no choice found");
  EXPECT_EQ(score_of("{kind = 'choice', letters = 'ABCDE'}", "E", "Answer: E"), 1);
  EXPECT_THROW(score_of("choice", "7", "B"), Error);
}

TEST(MathNumberChoice, ThoughtsAreNoAnswers) {
  for (const char* spec : {"math", "number"}) {
    EXPECT_EQ(score_of(spec, "18", "<think>\\boxed{17}? #### 17</think> It is 18."), 1) << spec;
    EXPECT_EQ(score_of(spec, "18", "<think>The answer is 18.</think> It is 17."), 0) << spec;
    EXPECT_EQ(score_of(spec, "18", "<think>18</think>"), 0) << spec;
    EXPECT_EQ(score_of(spec, "18", "<think>so #### 17</think><answer>18</answer> for 20 days"), 1) << spec;
  }
  EXPECT_EQ(score_of("math", "x^2+2x+1", "<think>hm</think> <answer>(x+1)^2</answer>"), 1);
  EXPECT_EQ(score_of("choice", "B", "<think>The answer is A? No.</think>\nB"), 1);
  EXPECT_EQ(score_of("choice", "B", "<answer>(B)</answer>"), 1);
  EXPECT_EQ(score_of("choice", "B", "<think>The answer is B.</think>"), 0);
}

TEST(Format, TagsOnceAndInOrder) {
  EXPECT_EQ(score_of("format", "", "<think>so</think> 4"), 1);
  EXPECT_EQ(judge("format", "", "4").note, "no <think>");
  EXPECT_EQ(judge("format", "", "<think>a</think><think>b</think>").note, "a second <think>");
  EXPECT_EQ(judge("format", "", "<think>a").note, "no </think>");
  EXPECT_EQ(judge("format", "", "</think><think>").note, "</think> before <think>");
  const std::string two = "{kind = 'format', tags = ['think', 'answer'], nothing_else = true}";
  EXPECT_EQ(score_of(two, "", "<think>a</think>\n<answer>4</answer>"), 1);
  EXPECT_EQ(score_of(two, "", "<answer>4</answer><think>a</think>"), 0);
  EXPECT_EQ(judge(two, "", "<think>a</think>so<answer>4</answer>").note, "text before <answer>");
  EXPECT_EQ(judge(two, "", "<think>a<answer>4</answer></think>").note, "<answer> is inside another block");
  EXPECT_EQ(score_of("{kind = 'format', opened = true}", "", "a</think> 4"), 1);
}

TEST(Format, Pattern) {
  const std::string spec = "{kind = 'format', tags = [], pattern = '^<a>.*</a>$'}";
  EXPECT_EQ(score_of(spec, "", "<a>x\ny</a>"), 1);
  EXPECT_EQ(score_of(spec, "", "x<a></a>"), 0);
  EXPECT_EQ(judge("{kind = 'format', tags = [], pattern = '^(a|aa)+$'}", "", std::string(60000, 'a') + "b").note,
            "the pattern took too many steps");
  EXPECT_EQ(judge(spec, "", std::string(100000, 'x')).note, "longer than max_bytes");
  EXPECT_THROW(make_reward("{kind = 'format', pattern = '('}"), Error);
}

TEST(Length, FallsInALineFromTargetToLimit) {
  const std::string spec = "{kind = 'length', unit = 'bytes', target = 10, limit = 20}";
  EXPECT_EQ(score_of(spec, "", std::string(10, 'x')), 1);
  EXPECT_EQ(score_of(spec, "", std::string(15, 'x')), 0.5);
  EXPECT_EQ(score_of(spec, "", std::string(30, 'x')), 0);
  EXPECT_TRUE(judge("length", "", "no ids").skipped);
  EXPECT_THROW(make_reward("{kind = 'length', target = 20, limit = 10}"), Error);
}

TEST(Overlong, TheSoftPunishmentOfDapo) {
  const auto reward = make_reward("overlong");
  const Task task{};
  const auto score = [&](size_t tokens) {
    return reward->score(task, {.ids = std::vector<int32_t>(tokens), .text = "", .finish_reason = ""}).score;
  };
  EXPECT_EQ(score(0), 0);
  EXPECT_EQ(score(16384), 0);
  EXPECT_EQ(score(16385), -1.0 / 4096);
  EXPECT_EQ(score(18432), -0.5);
  EXPECT_EQ(score(20480), -1);
  EXPECT_EQ(score(30000), -1);
  EXPECT_TRUE(judge("overlong", "", "no ids").skipped);
  EXPECT_THROW(make_reward("{kind = 'overlong', max_completion_length = 10, soft_punish_cache = 11}"), Error);
  EXPECT_THROW(make_reward("{kind = 'overlong', soft_punish_cache = 0}"), Error);
}

TEST(Number, CountsTheLettersOfEveryPublishedWord) {
  HONE_SHARED_OR_SKIP(path, "data/rl/letter_counting_test.jsonl");
  int rows = 0;
  read_jsonl(path, [&](const Json& row, int64_t) {
    const std::string &word = row.at("word").as_string(), &letter = row.at("letter").as_string();
    const std::string counted = std::to_string(std::count(word.begin(), word.end(), letter[0]));
    EXPECT_EQ(score_of("number", std::to_string(row.at("count").as_int()), letter + " is there " + counted + " times."),
              1)
        << row.dump();
    EXPECT_EQ(
        score_of("number", std::to_string(row.at("count").as_int() + 1), letter + " is there " + counted + " times."),
        0)
        << row.dump();
    ++rows;
  });
  EXPECT_EQ(rows, 1000);
}

TEST(SequenceCompletion, ShareOfTheNumbersThatAreRight) {
  const std::string spec = "sequence_completion";
  EXPECT_EQ(score_of(spec, "", "6,8,1,3", "2,4:9,4"), 1);
  EXPECT_EQ(score_of(spec, "", "6,8", "2,4:9,4"), 0.5);
  EXPECT_EQ(score_of(spec, "", "6,0,1,0", "2,4:9,4"), 0.5);
  EXPECT_EQ(score_of(spec, "", "6,8,1,3,5,7,0,2", "2,4:9,4"), 0.5);
  EXPECT_EQ(score_of(spec, "", "0,5,1,6", "8,4:9,4"), 1);  // the difference is modulo too
  EXPECT_EQ(score_of(spec, "", "", "2,4:9,0"), 1);
  EXPECT_EQ(score_of(spec, "", "6", "2,4:9,0"), 0);
  EXPECT_EQ(score_of(spec, "", "44,:,,9", "2,4:9,4"), 0);
  EXPECT_EQ(score_of("{kind = 'sequence_completion', order = 'count,modulus'}", "", "6,8,1,3", "2,4:4,9"), 1);
  EXPECT_THROW(score_of(spec, "", "1", "2,4:0,3"), Error);
  EXPECT_THROW(score_of(spec, "", "1", "what is 2+2?"), Error);
}

TEST(SequenceCompletion, EveryPublishedPromptCanBeAnswered) {
  HONE_SHARED_OR_SKIP(path, "data/rl/digit_completion_train.jsonl");
  int rows = 0;
  read_jsonl(path, [&](const Json& row, int64_t) {
    const std::string& prompt = row.at("prompt").as_string();
    const int first = prompt[0] - '0', second = prompt[2] - '0', modulus = prompt[4] - '0', count = prompt[6] - '0';
    std::string right;
    for (int k = 1; k <= count; ++k)
      right += (k > 1 ? "," : "") + std::to_string(((second + k * (second - first)) % modulus + modulus) % modulus);
    EXPECT_EQ(score_of("sequence_completion", "", right, prompt), 1) << prompt;
    ++rows;
  });
  EXPECT_EQ(rows, 800);
}

TEST(Composite, AddsItsPartsAndNamesThem) {
  const std::string spec =
      "{kind = 'composite', parts = [{kind = 'exact', weight = 2}, {kind = 'format', weight = 0.5}, {kind = 'length'}, "
      "{kind = 'exact', ignore_case "
      "= true}]}";
  const RewardScore score = judge(spec, "a", "A");
  EXPECT_EQ(score.score, 1);
  EXPECT_EQ(score.parts, (Metrics{{"exact", 0}, {"exact_2", 1}, {"format", 0}}));  // length is skipped without ids
  EXPECT_EQ(score.note, "exact: expected 'a'; format: no <think>; length: no token ids");
  EXPECT_EQ(score_of("{kind = 'composite', normalize = true, parts = [{kind = 'exact', weight = 3}, {kind = 'format', "
                     "weight = 1}]}",
                     "a", "a"),
            0.75);
  EXPECT_EQ(judge("{kind = 'composite', parts = [{kind = 'r1_zero'}]}", "5", "</think> <answer>5</answer>")
                .parts.at("r1_zero/format"),
            1);
}

static Task row_task(const std::string& id, const std::string& columns, const std::string& answer) {
  return {.id = id, .prompt = "", .messages = {}, .answer = answer, .columns = parse_json(columns, id)};
}

TEST(Composite, APartJudgesTheRowsThatItsConditionNames) {
  const auto reward = make_reward(
      "{kind = 'composite', normalize = true, parts = [{kind = 'number', weight = 3, when = {column = 'domain', equals "
      "= 'math'}}, {kind = 'exact', "
      "when = "
      "{column = 'domain', one_of = ['word', 'code']}}, {kind = 'format'}]}");
  const Task math = row_task("rows:1", R"({"domain": "math"})", "5"),
             word = row_task("rows:2", R"({"domain": "word"})", "no number");
  const Completion five{.ids = {}, .text = "5", .finish_reason = "stop"},
      text{.ids = {}, .text = "no number", .finish_reason = "stop"};
  const RewardScore of_math = reward->score(math, five), of_word = reward->score(word, text);
  EXPECT_EQ(of_math.parts, (Metrics{{"number", 1}, {"format", 0}}));  // a part that does not apply adds no zero
  EXPECT_EQ(of_math.score, 0.75);
  EXPECT_EQ(of_word.parts, (Metrics{{"exact", 1}, {"format", 0}}));  // "number" would reject this answer
  EXPECT_EQ(of_word.score, 0.5);
  // Groups of both kinds in one call give the same scores.
  const std::vector<Completion> fives{five, text}, texts{text, five};
  std::vector<RewardScore> first(2), second(2);
  const GroupScores groups[] = {{math, fives, first}, {word, texts, second}};
  reward->score_groups(groups);
  EXPECT_EQ(first[0].score, of_math.score);
  EXPECT_EQ(first[1].parts, (Metrics{{"number", 0}, {"format", 0}}));
  EXPECT_EQ(second[0].score, of_word.score);
  EXPECT_EQ(second[1].parts, (Metrics{{"exact", 0}, {"format", 0}}));
}

TEST(Composite, AConditionReadsTextNumbersBooleansAndPresence) {
  const auto parts = [](const std::string& when, const std::string& columns) {
    const auto reward =
        make_reward("{kind = 'composite', parts = [{kind = 'exact', when = " + when + "}, {kind = 'format'}]}");
    return reward->score(row_task("x", columns, "a"), {.ids = {}, .text = "a", .finish_reason = "stop"}).parts.size();
  };
  EXPECT_EQ(parts("{column = 'level', equals = '3'}", R"({"level": 3})"), 2u);
  EXPECT_EQ(parts("{column = 'level', equals = '3'}", R"({"level": 4})"), 1u);
  EXPECT_EQ(parts("{column = 'hard', equals = 'true'}", R"({"hard": true})"), 2u);
  EXPECT_EQ(parts("{column = 'tests'}", R"({"tests": ["assert True"]})"), 2u);
  EXPECT_EQ(parts("{column = 'tests'}", R"({"tests": null})"), 1u);
  EXPECT_EQ(parts("{column = 'tests'}", "{}"), 1u);
  EXPECT_EQ(parts("{column = 'level', equals = '3'}", "{}"), 1u);
  EXPECT_EQ(parts("{column = 'level', one_of = ['3']}", R"({"level": null})"), 1u);
  EXPECT_EQ(parts("{}", "{}"), 2u);
}

TEST(Composite, ARowWithoutAPartIsNamed) {
  const auto message = [](const std::string& columns) {
    const auto reward = make_reward(
        "{kind = 'composite', parts = [{kind = 'math', when = {column = 'domain', equals = 'math'}}, {kind = 'exact', "
        "name = 'word', when = {column "
        "= "
        "'domain', equals = 'word'}}]}");
    try {
      reward->score(row_task("rows.jsonl:7", columns, "5"), {.ids = {}, .text = "5", .finish_reason = "stop"});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char* words : {"rows.jsonl:7", "no part", "math needs column 'domain'", "word needs", "\"chem\""})
    EXPECT_NE(message(R"({"domain": "chem"})").find(words), std::string::npos) << words;
  for (const char* words : {"rows.jsonl:7", "no part", "column 'domain', which is missing"})
    EXPECT_NE(message("{}").find(words), std::string::npos) << words;
  EXPECT_EQ(message(R"({"domain": "math"})"), "");
}

TEST(MakeReward, MistakesAreNamed) {
  const auto message = [](const std::string& spec) {
    try {
      make_reward(spec);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message("exakt").find("did you mean 'exact'"), std::string::npos);
  EXPECT_NE(message("{kind = 'exakt'}").find("did you mean 'exact'"), std::string::npos);
  EXPECT_NE(message("{kind = 'exact', trimm = true}").find("trim"), std::string::npos);
  EXPECT_NE(message("{kind = 'composite'}").find("parts"), std::string::npos);
  EXPECT_NE(message("{kind = 'composite', parts = [{kind = 'exact', when = {equals = 'math'}}]}").find("column"),
            std::string::npos);
  EXPECT_NE(message("{kind = 'composite', parts = [{kind = 'exact', when = {colum = 'domain'}}]}").find("column"),
            std::string::npos);
  const test::TemporaryFolder folder;
  write_file_atomic(folder.path() / "r.toml", "kind = 'number'\ntolerance = 0.5\n");
  EXPECT_EQ(make_reward((folder.path() / "r.toml").string())
                ->score({.id = "", .prompt = "", .messages = {}, .answer = "2", .columns = {}},
                        {.ids = {}, .text = "2.25", .finish_reason = ""})
                .score,
            1);
}

}  // namespace hone
