#include "core/text/chat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace hone {
namespace {

const char* const kHermes =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// A byte vocabulary without merges, and ChatML's tokens.
Tokenizer tokenizer(const std::string& chat_template = "", bool chatml = true) {
  Json vocabulary(JsonObject{});
  int64_t id = 0;
  for (char c = '!'; c <= '~'; ++c) vocabulary.set(std::string(1, c), id++);
  vocabulary.set("\u0120", id++);  // the byte ' '
  vocabulary.set("\u010a", id++);  // the byte '\n'
  JsonArray added;
  for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    if (!chatml && added.size() == 1) break;
    Json entry(JsonObject{});
    entry.set("id", id++);
    entry.set("content", token);
    entry.set("special", true);
    added.push_back(entry);
  }
  Json model(JsonObject{{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json(JsonArray{})}});
  Json level(
      JsonObject{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}});
  Json file(JsonObject{{"added_tokens", Json(added)}, {"model", model}, {"pre_tokenizer", level}, {"decoder", level}});
  Json config(JsonObject{{"eos_token", chatml ? "<|im_end|>" : "<|endoftext|>"}});
  if (!chat_template.empty()) config.set("chat_template", chat_template);
  return Tokenizer::from_json(file, "test", config);
}

const std::vector<Message> kTalk = {
    {"user", "1+1?", {}}, {"assistant", "2", {}}, {"user", "2+2?", {}}, {"assistant", "4", {}}};

std::string trained_text(const std::vector<ChatPiece>& pieces) {
  std::string out;
  for (const ChatPiece& piece : pieces) out += piece.assistant ? "[" + piece.text + "]" : "";
  return out;
}

std::string whole_text(const std::vector<ChatPiece>& pieces) {
  std::string out;
  for (const ChatPiece& piece : pieces) out += piece.text;
  return out;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Chat, ChatmlTrainsOnRepliesAndTheirEndOfTurn) {
  const auto pieces = ChatFormat::make("chatml", tokenizer()).render(kTalk, false);
  EXPECT_EQ(trained_text(pieces), "[2<|im_end|>][4<|im_end|>]");
  EXPECT_EQ(whole_text(pieces).substr(0, 59), "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im");
}

TEST(Chat, PromptThenReplyHasTheIdsOfTheConversation) {
  const Tokenizer t = tokenizer(kHermes);
  for (const char* name : {"chatml", "template", "plain"}) {
    SCOPED_TRACE(name);
    const ChatFormat format = ChatFormat::make(name, t);
    ChatTokens prompt = format.encode(t, {kTalk[0]}, true);
    const ChatTokens all = format.encode(t, {kTalk[0], kTalk[1]}, false);
    const std::vector<int32_t> reply = t.encode("2<|im_end|>");
    prompt.ids.insert(prompt.ids.end(), reply.begin(), reply.end());
    ASSERT_GE(all.ids.size(), prompt.ids.size());
    EXPECT_TRUE(std::equal(prompt.ids.begin(), prompt.ids.end(), all.ids.begin()));
    EXPECT_EQ(std::count(all.mask.begin(), all.mask.end(), 1.0f), static_cast<std::ptrdiff_t>(reply.size()));
    EXPECT_EQ(std::count(prompt.mask.begin(), prompt.mask.end(), 0.0f),
              static_cast<std::ptrdiff_t>(prompt.mask.size()));
  }
}

TEST(Chat, TemplateWithoutGenerationBlocksGivesTheSamePiecesAsChatml) {
  const auto built_in = ChatFormat::make("chatml", tokenizer()).render(kTalk, false);
  const auto own = ChatFormat::make("template", tokenizer(kHermes)).render(kTalk, false);
  EXPECT_EQ(whole_text(own), whole_text(built_in));
  EXPECT_EQ(trained_text(own), trained_text(built_in));
}

TEST(Chat, GenerationBlocksAreTheMask) {
  const char* source =
      "{% for m in messages %}{{ m.role + ': ' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}!{% "
      "endgeneration %}"
      "{% else %}{{ m.content }}{% endif %};{% endfor %}";
  const auto pieces = ChatFormat::make("template", tokenizer(source)).render(kTalk, false);
  EXPECT_EQ(trained_text(pieces), "[2!][4!]");
  EXPECT_EQ(whole_text(pieces), "user: 1+1?;assistant: 2!;user: 2+2?;assistant: 4!;");
}

TEST(Chat, ReplyThatCannotBeFoundIsAnErrorOnlyForTraining) {
  const char* forgetful = "{% for m in messages %}{{ m.role }}: {{ m.content if loop.last else '...' }}\n{% endfor %}";
  const ChatFormat format = ChatFormat::make("auto", tokenizer(forgetful));
  EXPECT_NE(error_of([&] { format.render(kTalk, false); }).find("message 1"), std::string::npos);
  EXPECT_EQ(whole_text(format.render(kTalk, true)), "user: ...\nassistant: ...\nuser: ...\nassistant: 4\n");
}

TEST(Chat, EosThatATemplateAddsAtTheEndDoesNotHideEarlierReplies) {
  const char* source =
      "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>"
      "{% else %}{{ eos_token }}{% endif %}";
  const auto pieces = ChatFormat::make("template", tokenizer(source)).render(kTalk, false);
  EXPECT_EQ(trained_text(pieces), "[2][4<|im_end|>]");
}

TEST(Chat, AutoTakesTheTemplateThenChatmlThenPlain) {
  const std::vector<Message> hello = {{"user", "hi", {}}};
  EXPECT_EQ(whole_text(ChatFormat::make("auto", tokenizer("[{{ messages[0].content }}]")).render(hello, true)), "[hi]");
  EXPECT_EQ(whole_text(ChatFormat::make("auto", tokenizer()).render(hello, true)),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(whole_text(ChatFormat::make("auto", tokenizer("", false)).render(hello, true)), "hi\n");
}

TEST(Chat, StopsAtTheFormatsEndOfTurn) {
  const Tokenizer t = tokenizer();
  EXPECT_EQ(ChatFormat::make("chatml", t).stop_ids(t), std::vector<int32_t>{*t.find("<|im_end|>")});
  EXPECT_EQ(ChatFormat::make("plain", t).stop_ids(t), std::vector<int32_t>{*t.eos()});
}

TEST(Chat, WrongFormatsAreErrorsThatHelp) {
  EXPECT_NE(error_of([] { ChatFormat::make("chatlm", tokenizer()); }).find("did you mean 'chatml'"), std::string::npos);
  EXPECT_NE(error_of([] { ChatFormat::make("chatml", tokenizer("", false)); }).find("<|im_start|>"), std::string::npos);
  EXPECT_NE(error_of([] { ChatFormat::make("template", tokenizer()); }).find("no chat template"), std::string::npos);
  const ChatFormat strict = ChatFormat::make("template", tokenizer("{{ raise_exception('no system role') }}"));
  EXPECT_NE(error_of([&] { strict.render(kTalk, true); }).find("no system role"), std::string::npos);
}

TEST(Chat, MessagesAreReadAndCheckedFieldByField) {
  const auto parse = [](const char* text) { return parse_messages(parse_json(text, "t"), "a.jsonl:7"); };
  const auto messages = parse(
      R"([{"role": "user", "content": "hi", "name": "Ann"}, {"role": "assistant", "content": null, "tool_calls": []}])");
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].content, "hi");
  EXPECT_EQ(messages[0].extra.at("name").as_string(), "Ann");
  EXPECT_TRUE(messages[1].extra.at("content").is_null());
  EXPECT_NE(error_of([&] { parse("{}"); }).find("a.jsonl:7: messages must be a list"), std::string::npos);
  EXPECT_NE(error_of([&] { parse("[]"); }).find("is empty"), std::string::npos);
  EXPECT_NE(error_of([&] { parse("[3]"); }).find("messages[0] must be an object"), std::string::npos);
  EXPECT_NE(error_of([&] { parse(R"([{"role": "usr", "content": ""}])"); }).find("messages[0].role is 'usr'"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { parse(R"([{"role": "user", "content": 3}])"); }).find("messages[0].content must be a string"),
      std::string::npos);
}

}  // namespace hone
