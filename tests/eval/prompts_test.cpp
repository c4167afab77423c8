// How a row becomes a prompt: description, examples, chat.
#include "eval/prompts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/config/config.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

class PromptsTest : public ::testing::Test {
 protected:
  PromptsTest() {
    std::ofstream(folder.path() / "rows.jsonl") << R"({"q": "1+1", "a": "2", "s": "sum"}
{"q": "3*3", "a": "9", "s": "big_product"}
)";
    std::ofstream(folder.path() / "examples.jsonl") << R"({"q": "1+1", "a": "2", "s": "sum"}
{"q": "2+2", "a": "4", "s": "sum"}
{"q": "5+1", "a": "6", "s": "sum"}
{"q": "2*2", "a": "4", "s": "big_product"}
{"q": "2*3", "a": "6", "s": "big_product"}
)";
  }
  PromptSource source(const std::string& toml) const {
    return Config::from_text("files = ['" + (folder.path() / "rows.jsonl").string() + "']\nprompt = \"Q: {q}\\nA:\"\n" +
                                 toml + "\n[fewshot]\nfiles = ['" + (folder.path() / "examples.jsonl").string() +
                                 "']\n" + fewshot,
                             "task.toml")
        .as<PromptSource>();
  }
  static std::vector<EvalExample> load(const PromptSource& source, const EvalOptions& options = {}) {
    return source.load(options,
                       [](const Json& row, const std::string& where) { return " " + row.at("a", where).as_string(); });
  }
  static std::string text(const PromptSource& source, const EvalExample& doc, const EvalOptions& options = {},
                          size_t skipped = 0) {
    return PromptRenderer(source, options).task(doc, skipped).prompt;
  }
  TemporaryFolder folder;
  std::string fewshot;
};

TEST_F(PromptsTest, TheFirstExamplesComeBeforeTheQuestionButNeverTheRowItself) {
  const PromptSource s = source("num_fewshot = 2");
  const auto docs = load(s);
  EXPECT_EQ(text(s, docs[0]), "Q: 2+2\nA: 4\n\nQ: 5+1\nA: 6\n\nQ: 1+1\nA:");
  EXPECT_EQ(text(s, docs[1]), "Q: 1+1\nA: 2\n\nQ: 2+2\nA: 4\n\nQ: 3*3\nA:");
  EXPECT_EQ(text(s, docs[1], {}, 1), "Q: 2+2\nA: 4\n\nQ: 3*3\nA:");
  EXPECT_EQ(text(s, load(s, {.num_fewshot = 0})[1]), "Q: 3*3\nA:");
}

TEST_F(PromptsTest, ExamplesAreOfTheRowsSubtaskAndMustBeEnough) {
  const PromptSource s = source("num_fewshot = 2\nsubtask = '{s}'\ndescription = 'About {s|words}. '");
  const auto docs = load(s);
  EXPECT_EQ(text(s, docs[1]), "About big product. Q: 2*2\nA: 4\n\nQ: 2*3\nA: 6\n\nQ: 3*3\nA:");
  EXPECT_EQ(docs[1].subtask, "big_product");
  EXPECT_THROW(load(s, {.num_fewshot = 3}), Error);
}

TEST_F(PromptsTest, RandomExamplesDependOnTheRowAndTheSeedOnly) {
  fewshot = "sampler = 'random'\nseed = 1";
  const PromptSource s = source("num_fewshot = 3");
  const auto docs = load(s), again = load(s), first_only = load(s, {.limit = 1});
  EXPECT_EQ(text(s, docs[1]), text(s, again[1]));
  EXPECT_EQ(text(s, docs[0]), text(s, first_only[0]));
  for (const Shot& shot : docs[0].shots) EXPECT_NE(shot.prompt, "Q: 1+1\nA:");
  bool differs = false;
  for (int seed = 2; seed < 8; ++seed) {
    fewshot = "sampler = 'random'\nseed = " + std::to_string(seed);
    const PromptSource other = source("num_fewshot = 3");
    differs = differs || text(other, load(other)[1]) != text(s, docs[1]);
  }
  EXPECT_TRUE(differs);
}

TEST_F(PromptsTest, OffsetsSkipRowsAndATasksLimitIsNotExceeded) {
  fewshot = "offset = 1";
  const PromptSource s = source("num_fewshot = 1\noffset = 1\nlimit = 1");
  const auto docs = load(s, {.limit = 9});
  ASSERT_EQ(docs.size(), 1u);
  EXPECT_EQ(text(s, docs[0]), "Q: 2+2\nA: 4\n\nQ: 3*3\nA:");
}

TEST_F(PromptsTest, AnExampleMayContainItsAnswerAndHaveATemplateOfItsOwn) {
  fewshot = "prompt = '{q} is {a}.'\ndelimiter = ' ## '";
  const PromptSource s = source("num_fewshot = 1");
  EXPECT_EQ(text(s, load(s)[1]), "1+1 is 2. ## Q: 3*3\nA:");
}

std::string rendered(const Task& task) {
  std::string out;
  for (const Message& message : task.messages) out += "<" + message.role + ">" + message.content;
  return out;
}

TEST_F(PromptsTest, InAChatTheDescriptionIsTheSystemMessageAndExamplesAreOneMessageOrTurns) {
  const PromptSource s = source("num_fewshot = 1\ndescription = 'Add.'\nchat = 'chatml'");
  const EvalExample doc = load(s)[1];
  EXPECT_EQ(rendered(PromptRenderer(s, {}).task(doc)), "<system>Add.<user>Q: 1+1\nA: 2\n\nQ: 3*3\nA:");
  EXPECT_EQ(text(s, doc), "Q: 3*3\nA:");
  EXPECT_EQ(rendered(PromptRenderer(s, {.fewshot_as_multiturn = true, .system_instruction = "Be exact."}).task(doc)),
            "<system>Be exact.\n\nAdd.<user>Q: 1+1\nA:<assistant>2<user>Q: 3*3\nA:");
  const Json shown = PromptRenderer::shown(PromptRenderer(s, {}).task(doc));
  EXPECT_EQ(shown.as_array().at(1).at("role").as_string(), "user");
}

TEST_F(PromptsTest, TheChatTemplateIsAnOptionAndTextHasTheInstructionAtItsBeginning) {
  const PromptSource s = source("description = 'Add. '");
  const EvalExample doc = load(s)[1];
  EXPECT_EQ(text(s, doc, {.system_instruction = "Be exact."}), "Be exact.\n\nAdd. Q: 3*3\nA:");
  EXPECT_FALSE(PromptRenderer(s, {}).is_chat());
  const PromptRenderer chat(s, {.apply_chat_template = true});
  EXPECT_TRUE(chat.is_chat());
  EXPECT_EQ(rendered(chat.task(doc)), "<system>Add. <user>Q: 3*3\nA:");
}

TEST_F(PromptsTest, ATemplateOfTheOptionsReplacesTheTasksAndMeansAChat) {
  const PromptSource s = source("chat = 'llama3'\nchat_template_kwargs = { a = 1, b = 2 }");
  const EvalOptions options{.chat = {.chat_template = "zephyr", .chat_template_kwargs = JsonObject{{"b", 3}}}};
  const PromptRenderer renderer(s, options);
  EXPECT_EQ(renderer.format().chat, "auto");
  EXPECT_EQ(renderer.format().settings.chat_template, "zephyr");
  EXPECT_EQ(renderer.format().settings.chat_template_kwargs.dump(), R"({"a": 1, "b": 3})");
  EXPECT_TRUE(PromptRenderer(source(""), options).is_chat());
  EXPECT_EQ(PromptRenderer(s, {}).format().chat, "llama3");
}

TEST_F(PromptsTest, ARowsHashIsOfItsContents) {
  const PromptSource s = source("");
  const auto docs = load(s);
  EXPECT_NE(docs[0].hash, docs[1].hash);
  EXPECT_EQ(make_sample(docs[0]).hash.size(), 16u);
}

TEST_F(PromptsTest, ACheckTakesTheFirstRowOfEachFile) {
  std::ofstream(folder.path() / "more.jsonl") << R"({"q": "5-1", "a": "4", "s": "sum"}
{"no": "question"}
)";
  PromptSource s = source("");
  s.rows.files.push_back((folder.path() / "more.jsonl").string());
  const auto first = s.load(
      {}, [](const Json&, const std::string&) { return ""; }, RowsToLoad::first_of_files);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].question, "Q: 1+1\nA:");
  EXPECT_EQ(first[1].question, "Q: 5-1\nA:");
}

// Conversations of any form are questions without their last reply.
TEST_F(PromptsTest, ConversationsOfAnyFormAreQuestions) {
  std::ofstream(folder.path() / "rows.jsonl")
      << R"({"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]})"
      << "\n"
      << R"({"instruction": "Q", "output": "A"})"
      << "\n";
  PromptSource s = source("");
  s.prompt = "{prompt}";
  for (const EvalExample& doc : load(s)) {
    const Task task = PromptRenderer(s, {}).task(doc);
    ASSERT_EQ(task.messages.size(), 1u) << doc.where;
    EXPECT_EQ(task.messages[0].content, "Q");
  }
}

}  // namespace
}  // namespace hone::test
