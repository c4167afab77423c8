// A chat template whose end of turn is not the tokenizer's eos, from conversations to a served model: it ends
// completions everywhere.
#include "tests/core/text/chat_tokenizer.h"
#include "tests/e2e/whole_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

// Like a base model with a custom template: ChatML's tokens exist, and eos is <|endoftext|> (id 256). It writes earlier
// assistant turns differently from the last one, as Qwen3's template does.
const char* const kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}:{% endif %}{{ "
    "m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% endif %}";

const char* const kRecipe = R"(
seed = 3
tokenizer = "FOLDER/tokenizer"
[model]
hidden_size = 32
intermediate_size = 64
num_attention_heads = 2
num_hidden_layers = 1
max_position_embeddings = 96
[[stage]]
kind = "sft"
files = ["FOLDER/conversations.jsonl"]
assistant_only_loss = true
steps = 80
batch_size = 4
learning_rate = 1e-2
[[stage]]
kind = "rl"
files = ["FOLDER/tasks.jsonl"]
prompts_per_step = 2
num_generations = 3
steps = 2
learning_rate = 1e-5
sampling = { temperature = 1.0, max_tokens = 32 }
reward = { kind = "length", limit = 9, target = 3 }
)";

class ChatRun : public WholeRun {
 protected:
  ChatRun() : WholeRun(kRecipe) {
    const ChatTokenizer tokenizer{.chat_template = kTemplate};
    write("tokenizer/tokenizer.json", tokenizer.file().dump());
    write("tokenizer/tokenizer_config.json", tokenizer.config().dump());
    std::string conversations, tasks;
    for (const char* question : {"a", "b", "c", "d"}) {
      const std::string user = concat(R"({"role": "user", "content": ")", question, R"("})"),
                        reply = R"({"role": "assistant", "content": "yes"})";
      conversations += "{\"messages\": [" + user + ", " + reply + ", " + user + ", " + reply + "]}\n";
      tasks += "{\"messages\": [" + user + "], \"answer\": \"yes\"}\n";
    }
    write("conversations.jsonl", conversations);
    write("tasks.jsonl", tasks);
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder.path() / name).parent_path());
    write_file_atomic(folder.path() / name, in_folder(text, folder.path()));
  }
};

TEST_F(ChatRun, RepliesEndWithTheTemplatesEndOfTurnFromTrainingToPairs) {
  const fs::path done = run("run");
  std::vector<Json> samples;
  read_jsonl(done / "samples.jsonl", [&](const Json& row, int64_t) { samples.push_back(row); });
  EXPECT_EQ(samples.size(), 12u);  // 2 steps of 2 prompts with 3 completions
  size_t ended = 0;
  for (const Json& row : samples) {
    EXPECT_TRUE(row.at("prompt").as_string().starts_with("<|im_start|>user\n")) << row.dump();
    EXPECT_TRUE(row.at("prompt").as_string().ends_with("<|im_end|>\n<|im_start|>assistant\n")) << row.dump();
    EXPECT_EQ(row.at("messages").as_array().size(), 1u);
    EXPECT_EQ(row.at("completion").as_string().find("<|im_end|>"), std::string::npos);
    ended += row.at("finish_reason").as_string() == "stop";
  }
  EXPECT_GT(ended, 8u);  // "yes" and the end of turn have been learned

  const fs::path model = done / "checkpoints/grpo/step-2";
  EXPECT_EQ(parse_json(read_file(model / "generation_config.json"), "generation_config").at("eos_token_id").dump(),
            "[256, 258]");

  // A plain prompt ends there too, also in a folder without the saved list.
  fs::remove(model / "generation_config.json");
  const std::string prompt = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n";
  const Finished generated = run_hone({"generate", "--model", model.string(), "--prompt", prompt, "--max-tokens", "32",
                                       "--temperature", "0", "--json"});
  ASSERT_EQ(generated.code, 0) << generated.err;
  const Json reply = parse_json(generated.out, "generate");
  EXPECT_EQ(reply.at("finish_reason").as_string(), "stop");
  EXPECT_EQ(reply.at("ids").as_array().back().as_int(), 258);
  EXPECT_TRUE(reply.at("text").as_string().ends_with("yes")) << generated.out;
  const Finished talk =
      run_hone({"chat", "--model", model.string(), "--temperature", "0", "--max-tokens", "32"}, {}, "a\nb\n");
  ASSERT_EQ(talk.code, 0) << talk.err;
  const size_t first = talk.out.find("yes\n> ");
  EXPECT_NE(first, std::string::npos) << talk.out;
  EXPECT_NE(talk.out.find("yes\n> ", first + 1), std::string::npos) << talk.out;
  const fs::path exported = folder.path() / "exported";
  ASSERT_EQ(run_hone({"export", "--model", model.string(), "--out", exported.string()}).code, 0);
  EXPECT_EQ(parse_json(read_file(exported / "generation_config.json"), "generation_config").at("eos_token_id").dump(),
            "[256, 258]");

  write("pairs.toml",
        "files = [\"FOLDER/tasks.jsonl\"]\nnum_generations = 6\nsampling = { temperature = 1.5, max_tokens = 32 }\n"
        "reward = { kind = \"length\", limit = 9, target = 3 }\n");
  const fs::path pairs = folder.path() / "pairs.jsonl";
  const Finished paired =
      run_hone({"pairs", (folder.path() / "pairs.toml").string(), "--model", model.string(), "--out", pairs.string()});
  ASSERT_EQ(paired.code, 0) << paired.err;
  size_t count = 0;
  read_jsonl(pairs, [&](const Json& row, int64_t) {
    ++count;
    EXPECT_EQ(row.at("prompt").as_array().at(0).at("role").as_string(), "user");
    for (const char* side : {"chosen", "rejected"})
      EXPECT_EQ(row.at(side).as_array().at(0).at("role").as_string(), "assistant");
  });
  EXPECT_GT(count, 0u);
}

TEST_F(ChatRun, ARowWhoseRepliesCannotBeFoundIsNamed) {
  const ChatTokenizer tokenizer{.chat_template = "{{ messages[-1].content }}<|im_end|>"};
  write("tokenizer/tokenizer_config.json", tokenizer.config().dump());
  const Finished failed = run_hone(arguments("refused"));
  EXPECT_EQ(failed.code, 1);
  EXPECT_NE(failed.err.find("conversations.jsonl:1: chat template: the assistant's turn in message "),
            std::string::npos)
      << failed.err;
}

// A stage's template and variables decide what is trained on; the template is saved, and commands go on with it.
TEST_F(ChatRun, TheTemplateOfTrainingIsSavedWithTheModel) {
  const std::string mine =
      "{% for m in messages %}<|im_start|>{{ m.role }} {{ mood }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant {{ mood }}\n{{ '' }}{% endif %}";
  write("mine.jinja", mine);
  write("recipe.toml", R"(
seed = 3
tokenizer = "FOLDER/tokenizer"
[model]
hidden_size = 32
intermediate_size = 64
num_attention_heads = 2
num_hidden_layers = 1
max_position_embeddings = 96
chat_template_kwargs = { mood = "calm" }
[[stage]]
kind = "sft"
files = ["FOLDER/conversations.jsonl"]
assistant_only_loss = true
chat_template = "FOLDER/mine.jinja"
steps = 1
batch_size = 2
)");
  const fs::path done = run("saved"), model = done / "checkpoints/sft/step-1";
  EXPECT_EQ(read_file(model / "chat_template.jinja"), mine);

  const Finished shown = run_hone({"data", "show", (done / "recipe.toml").string(), "--rows", "1", "--json"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  std::string text, trained;
  const Json row = parse_json(shown.out, "show");
  for (size_t t = 0; t < row.at("tokens").as_array().size(); ++t) {
    text += row.at("tokens").as_array()[t].as_string();
    if (row.at("mask").as_array()[t].as_int() == 1) trained += row.at("tokens").as_array()[t].as_string();
  }
  EXPECT_TRUE(text.starts_with("<|im_start|>user calm\\na<|im_end|>\\n<|im_start|>assistant calm\\nyes<|im_end|>"))
      << text;
  EXPECT_EQ(trained, "yes<|im_end|>yes<|im_end|>");

  const auto prompt_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"generate",     "--model", model.string(), "--prompt", "a",
                                          "--max-tokens", "1",       "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished generated = run_hone(arguments);
    EXPECT_EQ(generated.code, 0) << generated.err;
    std::vector<int32_t> ids;
    const Json reply = parse_json(generated.out, "generate");
    for (const Json& id : reply.at("prompt_ids").as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
    return Tokenizer::load(model).decode(ids);
  };
  EXPECT_EQ(prompt_of({}), "a");
  EXPECT_EQ(prompt_of({"--apply-chat-template"}), "<|im_start|>user \na<|im_end|>\n<|im_start|>assistant \n");
  EXPECT_EQ(prompt_of({"--apply-chat-template", "--chat-template-kwargs", R"({"mood": "glad"})"}),
            "<|im_start|>user glad\na<|im_end|>\n<|im_start|>assistant glad\n");
  EXPECT_EQ(prompt_of({"--chat-template", "chatml", "--system", "S"}),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(run_hone({"generate", "--model", model.string(), "--prompt", "a", "--chat-template-kwargs", "[1]"}).code,
            2);
  const Finished unknown = run_hone({"chat", "--model", model.string(), "--chat-template", "chatlm"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_NE(unknown.err.find("did you mean 'chatml'"), std::string::npos) << unknown.err;
}

}  // namespace
}  // namespace hone::test
