// Text and assistant turns of the published chat templates equal transformers'
// (tests/golden/make_published_chat_masks.py).
#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/text/chat_settings.h"
#include "tests/core/text/chat_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

// A byte vocabulary with the special tokens of all templates.
Tokenizer tokenizer_of(const std::string& chat_template, const Json& bos_eos) {
  ChatTokenizer out{.chat_template = chat_template,
                    .bos = bos_eos.as_array()[0].as_string(),
                    .eos = bos_eos.as_array()[1].as_string(),
                    .special = {"<s>",
                                "</s>",
                                "<|endoftext|>",
                                "<|im_start|>",
                                "<|im_end|>",
                                "<|begin_of_text|>",
                                "<|eot_id|>",
                                "<|start_header_id|>",
                                "<|end_header_id|>",
                                "<|end|>",
                                "<|user|>",
                                "<|assistant|>",
                                "<bos>",
                                "<eos>",
                                "<start_of_turn>",
                                "<end_of_turn>",
                                "<｜begin▁of▁sentence｜>",
                                "<｜end▁of▁sentence｜>",
                                "<｜User｜>",
                                "<｜Assistant｜>"}};
  return out.make();
}

std::vector<Message> messages_of(const Json& conversation) {
  std::vector<Message> out = parse_messages(conversation.at("messages"), "golden");
  Json row = JsonObject{};
  if (const Json* tools = conversation.find("tools")) row.set("tools", *tools);
  if (const Json* kwargs = conversation.find("kwargs")) row.set("chat_template_kwargs", *kwargs);
  attach_row_variables(out, row, "golden");
  return out;
}

std::string text_of(const std::vector<ChatPiece>& pieces) {
  std::string out;
  for (const ChatPiece& piece : pieces) out += piece.text;
  return out;
}

std::vector<std::string> trained_of(const std::vector<ChatPiece>& pieces) {
  std::vector<std::string> out;
  for (const ChatPiece& piece : pieces)
    if (piece.assistant) out.push_back(piece.text);
  return out;
}

std::vector<std::string> strings_of(const Json& list) {
  std::vector<std::string> out;
  for (const Json& one : list.as_array()) out.push_back(one.as_string());
  return out;
}

}  // namespace

TEST(PublishedChatMasks, TextAndAssistantTurnsAreTransformers) {
  HONE_SHARED_OR_SKIP(folder, "data/templates");
  const std::string path = (source_folder() / "tests/golden/published_chat_masks.json").string();
  const Json golden = parse_json(read_file(path), path);
  int count = 0;
  for (const Json& one : golden.at("cases").as_array()) {
    const std::string& name = one.at("template").as_string();
    SCOPED_TRACE(name + ", " + one.at("conversation").as_string());
    const Tokenizer tokenizer = tokenizer_of(read_file(folder / (name + ".jinja")), golden.at("bos_eos").at(name));
    const std::vector<Message> messages =
        messages_of(golden.at("conversations").at(one.at("conversation").as_string()));
    const ChatFormat format = ChatFormat::make("template", tokenizer);
    ++count;
    if (const Json* error = one.find("error")) {
      EXPECT_NE(error_of([&] { format.render(messages, false); }).find(error->as_string()), std::string::npos);
      continue;
    }
    std::vector<ChatPiece> pieces;
    EXPECT_EQ(error_of([&] { pieces = format.render(messages, false); }), "no error");
    EXPECT_EQ(text_of(pieces), one.at("text").as_string());
    EXPECT_EQ(trained_of(pieces), strings_of(one.at("trained")));
    if (!one.at("prompt").is_string()) continue;
    EXPECT_EQ(text_of(format.render(messages, true)), one.at("text").as_string() + one.at("prompt").as_string());
  }
  EXPECT_EQ(count, 224);
}

}  // namespace hone::test
