// IFEval's checks: every stored reply and edited reply gets the verdicts of the original checker.
#include "rewards/instructions/instruction.h"

#include <map>
#include <set>

#include "core/io/jsonl.h"
#include "tests/support/support.h"

namespace hone {
namespace {

std::map<int64_t, Json> read_rows_by_key(const std::filesystem::path& path) {
  std::map<int64_t, Json> out;
  read_jsonl(path, [&](const Json& row, int64_t) { out[row.at("key").as_int()] = row; });
  return out;
}

// Replies by (key, set).
std::map<std::pair<int64_t, std::string>, std::string> read_replies(const std::filesystem::path& path) {
  std::map<std::pair<int64_t, std::string>, std::string> out;
  read_jsonl(path, [&](const Json& row, int64_t) {
    out[{row.at("key").as_int(), row.at("set").as_string()}] = row.at("response").as_string();
  });
  return out;
}

// Compares with the expected verdicts but those that the original draws at random; returns how many were compared.
int expect_verdicts(const Json& problem, const Json& expected, const std::string& reply) {
  std::set<int64_t> unstable;
  for (const Json& index : expected.at("unstable").as_array()) unstable.insert(index.as_int());
  const std::vector<Instruction> instructions = read_instructions(problem);
  const InstructionVerdicts verdicts = check_instructions(instructions, reply);
  int compared = 0;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (unstable.contains(static_cast<int64_t>(i))) continue;
    ++compared;
    const std::string where = expected.dump() + " " + instructions[i].id;
    EXPECT_EQ(verdicts.strict[i], expected.at("strict").as_array()[i].as_bool()) << "strict " << where;
    EXPECT_EQ(verdicts.loose[i], expected.at("loose").as_array()[i].as_bool()) << "loose " << where;
  }
  return compared;
}

std::string without_commas(std::string text) {
  std::erase(text, ',');
  return text;
}

std::string first_half(const std::string& text) {
  size_t characters = 0;
  for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end)
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80 && seen++ == characters / 2) break;
  return text.substr(0, end);
}

std::string in_case(std::string text, bool upper) {
  for (char& c : text) c = static_cast<char>(upper ? std::toupper(c) : std::tolower(c));
  return text;
}

std::string edited(const std::string& reply, const std::string& op) {
  if (op == "prefix_line") return "Sure, here is the response:\n\n" + reply;
  if (op == "suffix_line") return reply + "\n\nLet me know if you need anything else.";
  if (op == "first_half") return first_half(reply);
  if (op == "no_commas") return without_commas(reply);
  if (op == "quoted") return "\"" + reply + "\"";
  return in_case(reply, op == "ascii_upper");
}

TEST(IfEval, StoredRepliesGetTheOriginalVerdicts) {
  HONE_SHARED_OR_SKIP(folder, "data/eval");
  const auto problems = read_rows_by_key(folder / "ifeval.jsonl");
  const auto replies = read_replies(folder / "ifeval_responses.jsonl.gz");
  int rows = 0, compared = 0;
  read_jsonl(folder / "ifeval_expected.jsonl", [&](const Json& expected, int64_t) {
    const int64_t key = expected.at("key").as_int();
    compared += expect_verdicts(problems.at(key), expected, replies.at({key, expected.at("set").as_string()}));
    ++rows;
  });
  EXPECT_EQ(rows, 758);
  EXPECT_EQ(compared, 1165);
}

TEST(IfEval, EditedRepliesGetTheOriginalVerdicts) {
  HONE_SHARED_OR_SKIP(folder, "data/eval");
  const auto problems = read_rows_by_key(folder / "ifeval.jsonl");
  const auto replies = read_replies(folder / "ifeval_responses.jsonl.gz");
  int rows = 0;
  read_jsonl(folder / "ifeval_mutated_expected.jsonl", [&](const Json& expected, int64_t) {
    const int64_t key = expected.at("key").as_int();
    expect_verdicts(problems.at(key), expected, edited(replies.at({key, "a"}), expected.at("op").as_string()));
    ++rows;
  });
  EXPECT_EQ(rows, 2573);
}

bool follows(const std::string& id, const Json& arguments, const std::string& text) {
  return follows_instruction({id, arguments}, text);
}

TEST(Instruction, RepliesOfOneLineHaveNoLooseVariantWithoutIt) {
  const std::vector<Instruction> no_comma{{"punctuation:no_comma", JsonObject{}}};
  EXPECT_EQ(check_instructions(no_comma, "one, line").loose, std::vector<bool>{false});
  EXPECT_EQ(check_instructions(no_comma, "Well, here:\nit is").loose, std::vector<bool>{true});
  EXPECT_EQ(check_instructions(no_comma, "Well, here:\nit is").strict, std::vector<bool>{false});
  EXPECT_EQ(check_instructions(no_comma, " \n\n ").loose, std::vector<bool>{false});
}

TEST(Instruction, ArgumentsAreChecked) {
  const auto error = [](const std::string& id, const Json& arguments) {
    try {
      follows(id, arguments, "text");
    } catch (const Error& caught) {
      return std::string(caught.what());
    }
    return std::string("none");
  };
  EXPECT_NE(error("keywords:existance", JsonObject{}).find("did you mean 'keywords:existence'"), std::string::npos);
  EXPECT_NE(error("keywords:existence", JsonObject{}).find("needs 'keywords'"), std::string::npos);
  EXPECT_NE(error("keywords:existence", JsonObject{{"keywords", nullptr}}).find("needs 'keywords'"), std::string::npos);
  EXPECT_NE(error("keywords:existence", JsonObject{{"keywords", "one"}}).find("keywords"), std::string::npos);
  EXPECT_NE(error("keywords:existence", JsonObject{{"keywords", JsonArray{"(a"}}}).find("pattern"), std::string::npos);
  EXPECT_NE(error("length_constraints:number_words", JsonObject{{"num_words", 3}, {"relation", "around"}})
                .find("\"at least\" or \"less than\""),
            std::string::npos);
  EXPECT_THROW(read_instructions(JsonObject{{"instruction_id_list", JsonArray{"a", "b"}}, {"kwargs", JsonArray{}}}),
               Error);
  for (const Json& row : {Json(JsonObject{{"instruction_id_list", JsonArray{"a", "b"}}}),
                          Json(JsonObject{{"instruction_id_list", JsonArray{"a", "b"}}, {"kwargs", nullptr}})})
    EXPECT_EQ(read_instructions(row).size(), 2u);
}

TEST(Instruction, Json) {
  for (const char* good :
       {"{}", "```json\n[1, 2.5e3, \"a\\u00e9\", null]\n```", "NaN", "{\"a\": {\"b\": [true]}}", "-0"})
    EXPECT_TRUE(follows("detectable_format:json_format", {}, good)) << good;
  for (const char* bad : {"", "{'a': 1}", "[1,]", "01", "1.", "\"a\nb\"", "{} {}", "```json\nno\n```", "{\"a\" 1}"})
    EXPECT_FALSE(follows("detectable_format:json_format", {}, bad)) << bad;
  EXPECT_FALSE(follows("detectable_format:json_format", {}, std::string(1 << 20, '[')));
}

TEST(Instruction, HostileTextsEnd) {
  const std::string stars(1 << 18, '*'), blank(1 << 18, ' '), marks(1 << 18, '.');
  for (const std::string& id : instruction_ids())
    for (const std::string& text : {stars, blank, marks, std::string("\xff\xc3\x28"), std::string()}) {
      const Json arguments = JsonObject{{"keywords", JsonArray{"(a+)+b"}},
                                        {"forbidden_words", JsonArray{"b"}},
                                        {"keyword", "c"},
                                        {"frequency", 1},
                                        {"relation", "at least"},
                                        {"letter", "a"},
                                        {"let_frequency", 1},
                                        {"let_relation", "at least"},
                                        {"language", "en"},
                                        {"num_sentences", 2},
                                        {"num_words", 2},
                                        {"num_paragraphs", 2},
                                        {"nth_paragraph", 1},
                                        {"first_word", "a"},
                                        {"num_placeholders", 1},
                                        {"postscript_marker", "P.S."},
                                        {"num_bullets", 2},
                                        {"num_highlights", 2},
                                        {"section_spliter", "Section"},
                                        {"num_sections", 2},
                                        {"prompt_to_repeat", "a"},
                                        {"end_phrase", "b"},
                                        {"capital_frequency", 1},
                                        {"capital_relation", "at least"}};
      check_instructions({{id, arguments}}, text);
    }
}

}  // namespace
}  // namespace hone
