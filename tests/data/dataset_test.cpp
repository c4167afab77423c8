#include "data/dataset.h"

#include <gtest/gtest.h>

#include <map>

#include "core/config/config.h"
#include "core/io/file.h"
#include "tests/core/text/chat_tokenizer.h"
#include "tests/core/text/tokenizer/character_tokenizer.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

class DatasetTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    write_file_atomic(folder.path() / name, text);
    return (folder.path() / name).string();
  }
  TemporaryFolder folder;
  Tokenizer tokenizer = character_tokenizer(folder.path());
};

TEST_F(DatasetTest, RowsComeInOrderWithTheirPlaceUpToTheLimit) {
  const RowSource source{
      .files = {file("a.jsonl", "{\"x\": 1}\n\n{\"x\": 2}\n"), file("b.jsonl", "{\"x\": 3}\n{\"x\": 4}\n")},
      .generator = {},
      .limit = 3};
  std::vector<std::string> seen;
  read_rows(source,
            [&](const Json& row, const std::string& where) { seen.push_back(row.at("x").dump() + " " + where); });
  const std::string root = folder.path().string();
  EXPECT_EQ(seen, (std::vector<std::string>{"1 " + root + "/a.jsonl:1", "2 " + root + "/a.jsonl:3",
                                            "3 " + root + "/b.jsonl:1"}));
}

TEST_F(DatasetTest, AnOffsetPassesOverRowsOfAllFilesAndTheLimitCountsFromThere) {
  RowSource source{.files = {file("a.jsonl", "{\"x\": 1}\n{\"x\": 2}\n"), file("b.jsonl", "{\"x\": 3}\n{\"x\": 4}\n")},
                   .generator = {},
                   .offset = 1};
  const auto seen = [&] {
    std::string out;
    read_rows(source, [&](const Json& row, const std::string&) { out += row.at("x").dump(); });
    return out;
  };
  EXPECT_EQ(seen(), "234");
  source.limit = 2;
  EXPECT_EQ(seen(), "23");
  source.offset = 4;
  EXPECT_NE(error_of([&] { seen(); }).find("b.jsonl has no rows after the first 4"), std::string::npos);
}

TEST_F(DatasetTest, WhenSelectsRowsBeforeOffsetAndLimitCountThem) {
  RowSource source{.files = {file("w.jsonl",
                                  "{\"x\": 1}\n{\"x\": 2, \"k\": \"a\"}\n{\"x\": 3, \"k\": \"b\"}\n"
                                  "{\"x\": 4, \"k\": \"a\"}\n{\"x\": 5, \"k\": \"a\"}\n")},
                   .generator = {},
                   .when = {.column = "k", .equals = "a", .one_of = {}}};
  const auto read = [&] {
    std::string out;
    read_rows(source, [&](const Json& row, const std::string&) { out += row.at("x", "row").dump(); });
    return out;
  };
  EXPECT_EQ(read(), "245");
  source.offset = 1;
  EXPECT_EQ(read(), "45");
  source.limit = 1;
  EXPECT_EQ(read(), "4");
  source.when.equals = "c", source.offset = 0;
  EXPECT_NE(error_of(read).find("w.jsonl has no rows that `when` takes: 5 have another value of 'k'"),
            std::string::npos);
}

TEST_F(DatasetTest, RowsThatAreNoObjectsAndSourcesWithoutRowsAreErrors) {
  const auto read = [](std::vector<std::string> files) {
    return error_of(
        [&] { read_rows({.files = std::move(files), .generator = {}}, [](const Json&, const std::string&) {}); });
  };
  EXPECT_NE(read({file("list.jsonl", "[1]\n")}).find("list.jsonl:1: a row must be an object"), std::string::npos);
  EXPECT_NE(read({file("torn.jsonl", "{}\n{\"x\n")}).find("torn.jsonl:2:"), std::string::npos);
  EXPECT_NE(read({file("none.jsonl", "\n \n")}).find("none.jsonl has no rows"), std::string::npos);
  EXPECT_NE(read({}).find("set files or a generator"), std::string::npos);
}

TEST_F(DatasetTest, TheCompletionIsTrainedOnAndThePromptIsNot) {
  const SftSource source{.rows = {.files = {file("a.jsonl", R"({"q": "ab", "a": " c"})")}, .generator = {}},
                         .prompt = "{q}",
                         .completion = "{a}",
                         .sample = {}};
  const Sample sample = load_sft(source, tokenizer).at(0);
  const std::vector<int32_t> prompt = tokenizer.encode_document("ab"), completion = tokenizer.encode(" c");
  const size_t ends = tokenizer.eos() ? 1 : 0;
  ASSERT_EQ(sample.tokens.size(), prompt.size() + completion.size() + ends);
  for (size_t t = 0; t < sample.tokens.size(); ++t)
    EXPECT_EQ(sample.columns[columns::mask][t], t < prompt.size() ? 0 : 1) << t;
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), sample.tokens.begin()));
  EXPECT_TRUE(std::equal(completion.begin(), completion.end(),
                         sample.tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size())));
}

TEST_F(DatasetTest, OverlongRowsAreSkippedCutOrRefusedByTheKey) {
  SftSource source{.rows = {.files = {file("a.jsonl",
                                           "{\"q\": \"ab\", \"a\": \"c\"}\n{\"q\": \"ab\", \"a\": "
                                           "\"cccccccccccc\"}\n{\"q\": \"abababababab\", \"a\": \"c\"}\n")},
                            .generator = {}},
                   .prompt = "{q}",
                   .completion = "{a}",
                   .sample = {.format = {}, .max_length = 8}};
  EXPECT_EQ(load_sft(source, tokenizer).size(), 1u);
  source.sample.too_long = "truncate";  // the third row then has no trained token
  const std::vector<Sample> cut = load_sft(source, tokenizer);
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[1].tokens.size(), 8u);
  EXPECT_EQ(cut[1].columns.find(columns::mask).size(), 8u);
  source.sample.too_long = "error";
  EXPECT_NE(error_of([&] { load_sft(source, tokenizer); }).find("a.jsonl:2"), std::string::npos);
  source.sample.too_long = "skip";
  source.sample.max_length = 2;
  EXPECT_NE(error_of([&] { load_sft(source, tokenizer); }).find("every row is longer"), std::string::npos);
}

TEST_F(DatasetTest, TheEntireTextIsTrainedOnIfTheKeySaysSo) {
  SftSource source{.rows = {.files = {file("a.jsonl", R"({"q": "ab", "a": " c"})")}, .generator = {}},
                   .prompt = "{q}",
                   .completion = "{a}",
                   .completion_only_loss = false,
                   .sample = {}};
  const Sample sample = load_sft(source, tokenizer).at(0);
  for (size_t t = 0; t < sample.columns.find(columns::mask).size(); ++t)
    EXPECT_EQ(sample.columns[columns::mask][t], t > 0) << t;
}

TEST_F(DatasetTest, ConversationsAreTrainedOnWholeOrOnWhatTheAssistantSays) {
  SftSource source{};
  source.rows.files = {
      file("b.jsonl",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"aa\"}, {\"role\": \"assistant\", \"content\": \"b\"}, "
           "{\"role\": \"user\", \"content\": \"ca\"}, {\"role\": \"assistant\", \"content\": \"bb\"}]}\n")};
  source.sample.format.chat = "plain";
  const Sample all_trained = load_sft(source, tokenizer).at(0);
  source.assistant_only_loss = true;
  const Sample assistant = load_sft(source, tokenizer).at(0);
  EXPECT_EQ(all_trained.tokens, assistant.tokens);
  size_t replied = 0;
  for (size_t t = 0; t < all_trained.columns.find(columns::mask).size(); ++t) {
    EXPECT_EQ(all_trained.columns[columns::mask][t], t > 0) << t;
    if (assistant.columns[columns::mask][t] == 0) continue;
    const std::string text = tokenizer.token_bytes(all_trained.tokens[t]);
    EXPECT_TRUE(text != "a" && text != "c") << t;
    replied += text == "b";
  }
  EXPECT_EQ(replied, 3u);
}

// A template that writes only the last message.
TEST_F(DatasetTest, AnAssistantTurnThatATemplateOmitsIsNamedIfOnlyAssistantTurnsAreTrained) {
  const Tokenizer forgetful = ChatTokenizer{.chat_template = "{{ messages[-1].content }}<|im_end|>"}.make();
  SftSource source{};
  source.rows.files = {file("c.jsonl",
                            R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
                            "\n"
                            R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, )"
                            R"({"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})")};
  source.sample.format.chat = "template";
  EXPECT_EQ(load_sft(source, forgetful).size(), 2u);
  source.assistant_only_loss = true;
  const std::string error = error_of([&] { load_sft(source, forgetful); });
  EXPECT_NE(error.find("c.jsonl:2: chat template: the assistant's turn in message 1"), std::string::npos) << error;
}

// The column of a row counts before the stage's variables. Prompts that are text get them, too.
TEST_F(DatasetTest, TemplatesGetTheVariablesOfTheStageAndOfTheRow) {
  const Tokenizer chat = ChatTokenizer{.chat_template =
                                           "{{ mood }}{{ tools | length if tools else '' }}:"
                                           "{% for m in messages %}{{ m.content }}{% if m.role == "
                                           "'assistant' %}<|im_end|>{% endif %}{% endfor %}"}
                             .make();
  SftSource source{};
  source.rows.files = {file(
      "k.jsonl",
      R"({"prompt": "a", "completion": "b"})"
      "\n"
      R"({"prompt": "a", "completion": "b", "chat_template_kwargs": {"mood": "sad"}})"
      "\n"
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "tools": [{"x": 1}]})")};
  source.sample.format.chat = "template";
  source.sample.format.settings.chat_template_kwargs = JsonObject{{"mood", "glad"}};
  std::vector<std::string> texts;
  for (const Sample& sample : load_sft(source, chat)) texts.push_back(chat.decode(sample.tokens));
  EXPECT_EQ(texts, (std::vector<std::string>{"glad:ab<|im_end|>", "sad:ab<|im_end|>", "glad1:ab<|im_end|>"}));

  PromptEncoder encoder(source.sample.format, chat);
  Task task{.id = "t:1", .prompt = "q", .messages = {}, .answer = {}, .columns = JsonObject{}};
  EXPECT_EQ(chat.decode(encoder.prompt(task)), "glad:q");
  task.columns.set("chat_template_kwargs", JsonObject{{"mood", "odd"}});
  EXPECT_EQ(chat.decode(encoder.prompt(task)), "odd:q");
  task.columns.set("chat_template_kwargs", 3);
  EXPECT_NE(error_of([&] { encoder.prompt(task); }).find("t:1: chat_template_kwargs must be"), std::string::npos);
}

TEST_F(DatasetTest, AStagesTemplateReplacesTheTokenizersAndMakesAPromptAUsersMessage) {
  PromptFormat format{.chat = "", .system = "", .settings = {.chat_template = "chatml"}};
  const Tokenizer chat = ChatTokenizer{.chat_template = "own"}.make();
  const Task task{.id = "t", .prompt = "q", .messages = {}, .answer = {}, .columns = {}};
  EXPECT_EQ(chat.decode(PromptEncoder(format, chat).prompt(task)),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_NE(format.saved_tokenizer(chat).chat_template().find("<|im_start|>"), std::string::npos);
  EXPECT_EQ(PromptFormat{}.saved_tokenizer(chat).chat_template(), "own");
  format.chat = "plain";
  EXPECT_NE(
      error_of([&] { check_settings([&](Fields& f) { format.fields(f); }); }).find("remove chat or chat_template"),
      std::string::npos);
}

// An error of a template names the row, the template and its line.
TEST_F(DatasetTest, ATemplatesErrorNamesRowTemplateAndLine) {
  SftSource source{};
  source.rows.files = {file("r.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n")};
  source.sample.format.settings.chat_template = file("strict.jinja", "{{ 1 }}\n{{ raise_exception('no users') }}");
  const std::string error = error_of([&] { load_sft(source, ChatTokenizer{}.make()); });
  EXPECT_NE(error.find("r.jsonl:1: "), std::string::npos) << error;
  EXPECT_NE(error.find("strict.jinja: template line 2: no users"), std::string::npos) << error;
}

TEST_F(DatasetTest, TracesSayTheRoleOfEachTokenAndLeaveNoRowOut) {
  const Tokenizer chat = ChatTokenizer{}.make();
  std::vector<SampleTrace> traces;
  SftSource source{};
  source.rows.files = {file(
      "r.jsonl",
      R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "user"}, )"
      R"({"role": "assistant", "content": "yo"}]})"
      "\n"
      R"({"messages": [{"role": "user", "content": "a very long question"}, {"role": "assistant", "content": "yo"}]})")};
  source.assistant_only_loss = true;
  source.sample.max_length = 40;
  source.sample.traces = &traces;
  const std::vector<Sample> samples = load_sft(source, chat);
  ASSERT_EQ(samples.size(), 2u);
  ASSERT_EQ(traces.size(), 2u);
  ASSERT_EQ(traces[0].roles.size(), samples[0].tokens.size());
  std::map<TokenRole, std::string> text;
  for (size_t t = 0; t < samples[0].tokens.size(); ++t) {
    text[traces[0].roles[t]] += chat.token(samples[0].tokens[t]);
    EXPECT_EQ(samples[0].columns[columns::mask][t] != 0, traces[0].roles[t] == TokenRole::assistant) << t;
  }
  EXPECT_EQ(text[TokenRole::system], "S");
  EXPECT_EQ(text[TokenRole::user], "user");
  EXPECT_EQ(text[TokenRole::assistant], "yo<|im_end|>");
  EXPECT_GT(samples[1].tokens.size(), 40u);  // skipped in training
  source.sample.traces = nullptr;
  EXPECT_EQ(load_sft(source, chat).size(), 1u);
}

// Tokenizers of SentencePiece's kind put a space in front of a text, which the text does not have.
TEST_F(DatasetTest, RolesAreThoseOfTheTextWithoutTheSpaceThatATokenizerPutsInFront) {
  const Tokenizer pieces =
      Tokenizer::from_json(parse_json(R"({"added_tokens": [{"id": 1, "content": "<s>", "special": true},
        {"id": 2, "content": "</s>", "special": true}], "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "decoder": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        "model": {"type": "BPE", "vocab": {"▁": 3, "a": 4, "b": 5, "c": 6, "d": 7, ":": 8, "\n": 9},
        "merges": []}})",
                                      "test"),
                           "test", JsonObject{{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  std::vector<SampleTrace> traces;
  SftSource source{};
  source.rows.files = {file("r.jsonl", R"({"messages": [{"role": "user", "content": "ab"}, )"
                                       R"({"role": "assistant", "content": "cd"}, {"role": "user", "content": "a b"}, )"
                                       R"({"role": "assistant", "content": "c"}]})")};
  source.assistant_only_loss = true;
  source.sample.format.settings.chat_template =
      file("t.jinja",
           "{% for m in messages %}{{ '<s>:' if m.role == 'user' else '' }}{{ m.content }}"
           "{{ '</s>' if m.role == 'assistant' else '\n' }}{% endfor %}");
  source.sample.traces = &traces;
  const std::vector<Sample> samples = load_sft(source, pieces);
  const std::vector<TokenRole>& roles = traces.at(0).roles;
  ASSERT_EQ(roles.size(), samples.at(0).tokens.size());
  std::map<TokenRole, std::string> text;
  for (size_t t = 0; t < roles.size(); ++t) {
    text[roles[t]] += pieces.token(samples[0].tokens[t]);
    EXPECT_EQ(samples[0].columns[columns::mask][t] != 0, roles[t] == TokenRole::assistant) << t;
  }
  EXPECT_EQ(text[TokenRole::user], "aba▁b");
  EXPECT_EQ(text[TokenRole::assistant], "cd</s>c</s>");
  EXPECT_EQ(text[TokenRole::format], "<s>▁:\n<s>▁:\n");
}

TEST_F(DatasetTest, TasksKeepTheRowAndNeedNoAnswer) {
  TaskSource source{.rows = {.files = {file("t.jsonl", R"({"q": "a b", "level": 3})")}, .generator = {}},
                    .prompt = "{q}.",
                    .answer = ""};
  const Task task = load_tasks(source).at(0);
  EXPECT_EQ(task.prompt, "a b.");
  EXPECT_EQ(task.answer, "");
  EXPECT_EQ(task.columns.at("level").as_int(), 3);
  source.answer = "{answer}";
  EXPECT_NE(error_of([&] { load_tasks(source); }).find("t.jsonl:1"), std::string::npos);
}

}  // namespace
}  // namespace hone::test
