// The built-in chat templates write what the published ones write, and mark the assistant's turns.
#include "core/text/builtin_templates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/io/jsonl.h"
#include "core/text/chat.h"
#include "core/text/chat_settings.h"
#include "tests/core/text/chat_tokenizer.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

Tokenizer tokenizer_of(const std::string& bos = "<s>", const std::string& eos = "</s>") {
  ChatTokenizer out{.bos = bos, .eos = eos, .special = {}};
  for (const BuiltinTemplate& builtin : builtin_templates())
    for (const std::string& token : builtin.needs)
      if (std::ranges::find(out.special, token) == out.special.end()) out.special.push_back(token);
  for (const std::string& token : {bos, eos})
    if (!token.empty() && std::ranges::find(out.special, token) == out.special.end()) out.special.push_back(token);
  return out.make();
}

std::string text_of(const std::vector<ChatPiece>& pieces, bool trained = false) {
  std::string out;
  for (const ChatPiece& piece : pieces)
    if (!trained || piece.assistant) out += trained ? "[" + piece.text + "]" : piece.text;
  return out;
}

}  // namespace

TEST(BuiltinTemplates, WriteThePublishedText) {
  HONE_SHARED_OR_SKIP(folder, "data/templates");
  const std::map<std::string, std::string> same = {{"alpaca", "alpaca"},         {"chatml", "chatml"},
                                                   {"gemma-2-it", "gemma"},      {"llama3", "llama3"},
                                                   {"phi-3.5-mini", "phi3"},     {"smollm2-instruct", "smollm2"},
                                                   {"qwen2.5-instruct", "qwen"}, {"mistral-nemo-instruct", "mistral"}};
  int count = 0;
  for (const char* file : {"rendered_cases.jsonl", "rendered_tool_cases.jsonl"})
    read_jsonl(folder / file, [&](const Json& row, int64_t line) {
      const auto name = same.find(row.at("template").as_string());
      const Json* tools = row.find("tools");
      if (name == same.end() || row.at("rendered").is_null() || (tools && name->second != "qwen")) return;
      SCOPED_TRACE(concat(file, ":", line));
      const Tokenizer tokenizer = tokenizer_of(row.at("bos_token").as_string(), row.at("eos_token").as_string());
      std::vector<Message> messages = parse_messages(row.at("messages"), "golden");
      attach_row_variables(messages, row, "golden");
      EXPECT_EQ(text_of(ChatFormat::make(name->second, tokenizer)
                            .render(messages, row.at("add_generation_prompt").as_bool(), messages.size())),
                row.at("rendered").as_string());
      ++count;
    });
  EXPECT_EQ(count, 80);
}

TEST(BuiltinTemplates, TrainOnTheContentAndItsEnd) {
  const std::map<std::string, std::string> ends = {
      {"alpaca", "</s>"},        {"chatml", "<|im_end|>"}, {"gemma", "<end_of_turn>"}, {"llama3", "<|eot_id|>"},
      {"mistral", "</s>"},       {"phi3", "<|end|>"},      {"plain", "</s>"},          {"qwen", "<|im_end|>"},
      {"smollm2", "<|im_end|>"}, {"zephyr", "</s>"}};
  const std::vector<Message> talk = {
      {"user", "1+1?", {}}, {"assistant", "2", {}}, {"user", "2+2?", {}}, {"assistant", "4", {}}};
  const Tokenizer tokenizer = tokenizer_of();
  ASSERT_EQ(builtin_templates().size(), ends.size());
  for (const BuiltinTemplate& builtin : builtin_templates()) {
    SCOPED_TRACE(std::string(builtin.name));
    const std::string end = ends.at(std::string(builtin.name));
    const ChatFormat format = ChatFormat::make(builtin.name, tokenizer);
    EXPECT_EQ(text_of(format.render(talk, false), true), "[2" + end + "][4" + end + "]");
    EXPECT_EQ(text_of(format.render(talk, false, 2), true), "[4" + end + "]");
    EXPECT_EQ(format.stop_ids(tokenizer), std::vector<int32_t>{*tokenizer.find(end)});
    // The prompt and the completion have the text of the conversation.
    const std::string prompt = text_of(format.render({talk.begin(), talk.begin() + 3}, true));
    EXPECT_TRUE(text_of(format.render(talk, false)).starts_with(prompt + "4" + end)) << prompt;
  }
}

}  // namespace hone::test
