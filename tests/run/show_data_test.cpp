// hone data show: samples of stages as training makes them.
#include "run/show_data.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "tests/core/text/chat_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/recipe_text.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

class ShowDataTest : public ::testing::Test {
 protected:
  ShowDataTest() {
    const ChatTokenizer base;
    write("tok/tokenizer.json", base.file().dump());
    write("tok/tokenizer_config.json", base.config().dump());
    write(
        "chats.jsonl",
        R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo\n"}]})"
        "\n"
        R"({"messages": [{"role": "user", "content": "a long question here"}, {"role": "assistant", "content": "no"}]})"
        "\n");
    write("pairs.jsonl", R"({"prompt": "p", "chosen": "good", "rejected": "bad"})");
    write("tasks.jsonl", R"({"question": "1+1", "answer": "2"})");
    write("text.jsonl", "{\"text\": \"abcdef\"}\n{\"text\": \"ghi\"}\n");
  }
  void write(const std::string& name, const std::string& text) const {
    make_folder((folder.path() / name).parent_path());
    write_file_atomic(folder.path() / name, text);
  }
  Recipe recipe(const std::string& stages, const std::string& top = "tokenizer = 'FOLDER/tok'\n") const {
    const std::string text = top + "[model]\nhidden_size = 32\n" + stages;
    return read_recipe(Config::from_text(in_folder(text, folder.path()), "recipe.toml"));
  }
  std::vector<std::string> show(const Recipe& recipe, const ShowOptions& options = {},
                                const ShowStyle& style = {}) const {
    std::optional<Tokenizer> tokenizer;
    std::vector<std::string> out;
    for (const ShownStage& stage : show_data(recipe, options, tokenizer))
      for (const ShownSample& shown : stage.samples) {
        std::string text = shown_text(shown, *tokenizer, style);
        for (size_t at = 0; (at = text.find(folder.path().string() + "/")) != std::string::npos;)
          text.erase(at, folder.path().string().size() + 1);
        out.push_back(text);
      }
    return out;
  }
  TemporaryFolder folder;
};

constexpr const char* kSft =
    "[[stage]]\nkind = 'sft'\nfiles = ['FOLDER/chats.jsonl']\nassistant_only_loss = true\nsteps = 1\n";

}  // namespace

TEST_F(ShowDataTest, RolesMaskAndSpecialTokensOfAConversation) {
  const std::vector<std::string> shown = show(recipe(kSft), {.rows = 1});
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0],
            "chats.jsonl:1: 26 tokens, 4 trained\n"
            "    format     <|im_start|>·u·s·e·r·\\n\n"
            "    user       h·i\n"
            "    format     <|im_end|>·\\n·<|im_start|>·a·s·s·i·s·t·a·n·t·\\n\n"
            "  + assistant  y·o·\\n·<|im_end|>\n"
            "    format     \\n\n");
}

TEST_F(ShowDataTest, IdsAndColorsAreOptions) {
  const std::string ids = show(recipe(kSft), {.rows = 1}, {.ids = true})[0];
  EXPECT_NE(ids.find("  + assistant  y/121 o/111 \\n/10 <|im_end|>/258\n"), std::string::npos) << ids;
  const std::string color = show(recipe(kSft), {.rows = 1}, {.color = true})[0];
  EXPECT_NE(color.find("\x1b[32;1;4my\x1b[0m"), std::string::npos) << color;
  EXPECT_NE(color.find("\x1b[36mh\x1b[0m"), std::string::npos) << color;
}

TEST_F(ShowDataTest, RowsThatAreTruncatedOrLeftOutSaySo) {
  const std::string cut = "max_length = 36\noverlong_rows = ";
  const auto second = [&](const std::string& what) { return show(recipe(kSft + cut + "'" + what + "'\n"))[1]; };
  EXPECT_NE(second("skip").find("chats.jsonl:2: 43 tokens, 3 trained; left out: longer than max_length = 36\n"),
            std::string::npos)
      << second("skip");
  EXPECT_NE(second("truncate").find("36 tokens, 0 trained, truncated from 43; left out: no token is trained on\n"),
            std::string::npos)
      << second("truncate");
  EXPECT_NE(error_of([&] { second("error"); }).find("chats.jsonl:2: 43 tokens, max_length is 36"), std::string::npos);
}

TEST_F(ShowDataTest, PairsPromptsAndWindowsOfACorpus) {
  const Recipe all = recipe(
      "[[stage]]\nkind = 'pretrain'\nfiles = ['FOLDER/text.jsonl']\nmax_length = 4\nsteps = 1\n"
      "[[stage]]\nkind = 'preference'\nfiles = ['FOLDER/pairs.jsonl']\nsteps = 1\n"
      "[[stage]]\nkind = 'rl'\nfiles = ['FOLDER/tasks.jsonl']\nprompt = '{question}='\nsteps = 1\nreward = { kind = "
      "'math' }\n");
  const std::vector<std::string> shown = show(all, {.rows = 2});
  ASSERT_EQ(shown.size(), 5u);
  EXPECT_EQ(shown[0], "window 1: 4 tokens, 3 trained\n    text       a\n  + text       b·c·d\n");
  EXPECT_EQ(shown[1], "window 2: 4 tokens, 3 trained\n    text       e\n  + text       f·<|endoftext|>·g\n");
  EXPECT_EQ(shown[2],
            "pairs.jsonl:1 (chosen): 6 tokens, 5 trained\n    prompt     p\n  + completion g·o·o·d·<|endoftext|>\n");
  EXPECT_TRUE(shown[3].starts_with("pairs.jsonl:1 (rejected): 5 tokens, 4 trained\n")) << shown[3];
  EXPECT_EQ(shown[4], "tasks.jsonl:1 (prompt): 4 tokens, 0 trained; answer: 2\n    prompt     1·+·1·=\n");
  EXPECT_EQ(show(all, {.stage = "dpo"}).size(), 2u);
  const std::string error = error_of([&] { show(all, {.stage = "dpu"}); });
  EXPECT_NE(error.find("no stage is named 'dpu'; did you mean 'dpo'"), std::string::npos) << error;
}

TEST_F(ShowDataTest, ATemplateOfAnEarlierStageIsTheModels) {
  const std::string prompts =
      "[[stage]]\nkind = 'rl'\nname = 'rl'\nfiles = ['FOLDER/tasks.jsonl']\nprompt = "
      "'{question}'\nchat = 'auto'\nsteps = 1\nreward = { kind = 'math' }\n";
  const std::string sft = std::string(kSft) + "chat_template = 'zephyr'\n";
  const auto text = [&](const Recipe& one) { return show(one, {.rows = 1, .stage = "rl"}, {.ids = false})[0]; };
  EXPECT_NE(text(recipe(sft + prompts)).find("<·|·a·s·s·i·s·t·a·n·t·|·>"), std::string::npos);
  EXPECT_NE(text(recipe(prompts)).find("<|im_start|>·a"), std::string::npos);
}

TEST_F(ShowDataTest, ATokenizerThatAStageTrainsIsAskedFor) {
  const std::string stages =
      "[[stage]]\nkind = 'tokenizer'\nfiles = ['FOLDER/text.jsonl']\nvocab_size = 270\n" + std::string(kSft);
  const Recipe trained = recipe(stages, "");
  const std::string error = error_of([&] { show(trained); });
  EXPECT_NE(error.find("stage sft: stage tokenizer trains its tokenizer"), std::string::npos) << error;
  EXPECT_NE(error.find("--tokenizer"), std::string::npos) << error;
  EXPECT_EQ(show(trained, {.tokenizer = (folder.path() / "tok").string()}).size(), 2u);
  EXPECT_NE(error_of([&] { show(recipe(kSft, "")); }).find("names no tokenizer and no model folder"),
            std::string::npos);
}

}  // namespace hone::test
