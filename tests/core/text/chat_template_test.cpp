// Assistant turns in the output of chat templates, and the tokens that end them.
#include "core/text/chat_template.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "core/text/tokenizer/tokenizer.h"
#include "tests/core/text/chat_tokenizer.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

using Texts = std::vector<std::string>;

std::string text_of(const std::vector<ChatPiece>& pieces) {
  std::string out;
  for (const ChatPiece& piece : pieces) out += piece.text;
  return out;
}

Texts trained_of(const std::vector<ChatPiece>& pieces) {
  Texts out;
  for (const ChatPiece& piece : pieces)
    if (piece.assistant) out.push_back(piece.text);
  return out;
}

Texts trained_of(const Tokenizer& tokenizer, const std::string& messages, size_t first = 0) {
  return trained_of(
      ChatFormat::make("template", tokenizer).render(parse_messages(parse_json(messages, "m"), "m"), false, first));
}

// The tokens that end a generation.
Texts ends_of(const Tokenizer& tokenizer) {
  Texts out;
  for (const int32_t id : tokenizer.stop_ids()) out.push_back(tokenizer.token(id));
  return out;
}

Texts ends_of_template(const std::string& chat_template) {
  return ends_of(ChatTokenizer{.chat_template = chat_template}.make());
}

std::string without_marks(std::string chat_template) {
  for (const std::string mark : {"{% generation %}", "{% endgeneration %}"})
    for (size_t at = 0; (at = chat_template.find(mark)) != std::string::npos;) chat_template.erase(at, mark.size());
  return chat_template;
}

const char* const kTwoTurns =
    R"([{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "2+2?"},
                                  {"role": "assistant", "content": "4"}])";
const char* const kQuestion = "{% for m in messages %}{% if m.role == 'user' %}<|im_start|>{{ m.content }}{% else %}";

}  // namespace

// The spans of transformers (tests/golden/make_chat_masks.py) are found with and without the template's generation
// blocks.
TEST(ChatTemplate, RepliesAreWhatTransformersMarksWithAndWithoutMarks) {
  const std::string path = (source_folder() / "tests/golden/chat_masks.json").string();
  const Json golden = parse_json(read_file(path), path);
  int count = 0;
  for (const Json& one : golden.at("cases").as_array()) {
    const std::string marked = golden.at("templates").at(one.at("template").as_string()).as_string();
    const std::vector<Message> messages =
        parse_messages(golden.at("conversations").at(one.at("conversation").as_string()), "golden");
    for (const std::string& source : {marked, without_marks(marked)}) {
      SCOPED_TRACE(one.at("template").as_string() + ", " + one.at("conversation").as_string() +
                   (source == marked ? "" : ", no marks"));
      const Tokenizer tokenizer = ChatTokenizer{
          .chat_template = source,
          .bos = "<s>",
          .eos = "</s>",
          .special = {"<s>", "</s>", "<|im_start|>",
                      "<|im_end|>"}}.make();
      const ChatFormat format = ChatFormat::make("template", tokenizer);
      ++count;
      if (const Json* error = one.find("error")) {
        EXPECT_NE(error_of([&] { format.render(messages, false); }).find(error->as_string()), std::string::npos);
        continue;
      }
      const std::vector<ChatPiece> pieces = format.render(messages, false);
      EXPECT_EQ(text_of(pieces), one.at("text").as_string());
      Texts trained;
      for (const Json& text : one.at("trained").as_array()) trained.push_back(text.as_string());
      EXPECT_EQ(trained_of(pieces), trained);
    }
  }
  EXPECT_EQ(count, 144);
}

TEST(ChatTemplate, TheMaskOfAConversationIsOneOnItsRepliesAndTheirEnds) {
  const std::string source = std::string(kQuestion) + "<|im_start|>{{ m.content }}<|im_end|>{% endif %}{% endfor %}";
  const Tokenizer tokenizer = ChatTokenizer{.chat_template = source}.make();
  const std::vector<Message> messages = parse_messages(parse_json(kTwoTurns, "m"), "m");
  const ChatTokens tokens = ChatFormat::make("template", tokenizer).encode(tokenizer, messages, false);
  EXPECT_EQ(tokenizer.decode(tokens.ids),
            "<|im_start|>1+1?<|im_start|>2<|im_end|><|im_start|>2+2?<|im_start|>4<|im_end|>");
  std::string mask;
  for (const float m : tokens.mask) mask += m != 0 ? '1' : '0';
  // Without a generation prompt the model writes the header, so it belongs to the turn.
  EXPECT_EQ(mask,
            "00000"
            "111"
            "00000"
            "111");
}

TEST(ChatTemplate, OnlyTurnsFromTheGivenMessageOnAreTrainedOn) {
  for (const char* chat_template :
       {"{% for m in messages %}{{ '<|im_start|>' + m.role + ':' + m.content + '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}",
        "{% for m in messages %}<|im_start|>{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content "
        "}}<|im_end|>{% endgeneration %}"
        "{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}{% if add_generation_prompt "
        "%}<|im_start|>assistant:{% endif %}"}) {
    const Tokenizer tokenizer = ChatTokenizer{.chat_template = chat_template}.make();
    EXPECT_EQ(trained_of(tokenizer, kTwoTurns), (Texts{"2<|im_end|>", "4<|im_end|>"}));
    EXPECT_EQ(trained_of(tokenizer, kTwoTurns, 2), (Texts{"4<|im_end|>"}));
    EXPECT_EQ(trained_of(tokenizer, kTwoTurns, 4), Texts{});
  }
}

TEST(ChatTemplate, TheEndOfTurnIsTheFirstSpecialTokenBehindAReply) {
  const std::string eos = "<|endoftext|>", end = "<|im_end|>", reply = std::string(kQuestion) + "{{ m.content }}";
  const std::string close = "{% endif %}{% endfor %}";
  EXPECT_EQ(ends_of_template(reply + end + close), (Texts{eos, end}));
  EXPECT_EQ(ends_of_template(reply + "{{ ' \n' }}" + end + "{{ '\n' }}" + close),
            (Texts{eos, end}));  // on a separate line
  EXPECT_EQ(ends_of_template(std::string(kQuestion) + "{{ m.content | trim }}" + end + close), (Texts{eos, end}));
  EXPECT_EQ(ends_of_template(reply + end + close + "{{ eos_token }}"),
            (Texts{eos, end}));  // the conversation ends differently
  EXPECT_EQ(ends_of_template(reply + "{{ eos_token }}" + close), Texts{eos});
  EXPECT_EQ(ends_of_template(reply + "###" + close), Texts{eos});  // "###" is not a token
  EXPECT_EQ(ends_of_template(reply + close), Texts{eos});          // the next turn's header does not end a turn
  EXPECT_EQ(ends_of_template("{% if messages[0].role != 'system' %}{{ raise_exception('a system message!') }}{% endif "
                             "%}{% for m in messages %}"
                             "{{ m.content }}<|im_end|>{% endfor %}"),
            (Texts{eos, end}));
  for (const char* broken : {"{{ raise_exception('never') }}", "{% for %}", "no messages"})
    EXPECT_EQ(ends_of_template(broken), Texts{eos}) << broken;
}

TEST(ChatTemplate, AnEndOfTurnThatIsNoSpecialTokenIsNoTextOfAReply) {
  const Tokenizer tokenizer = ChatTokenizer{
      .chat_template = std::string(kQuestion) + "{{ m.content }}\n\n<end>{% endif %}{% endfor %}",
      .bos = "",
      .eos = "<|endoftext|>",
      .special = {"<|endoftext|>", "<|im_start|>"},
      .added = {"\n\n", "<end>"}}.make();
  EXPECT_EQ(ends_of(tokenizer), (Texts{"<|endoftext|>", "<end>"}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("four<end>"), true), "four");
}

TEST(ChatTemplate, TokensOfChatmlEndATurnWhereThereIsNoTemplate) {
  EXPECT_EQ(ends_of(ChatTokenizer{}.make()), (Texts{"<|endoftext|>", "<|im_end|>"}));
  EXPECT_EQ(ends_of(ChatTokenizer{.special = {"<|endoftext|>", "<|im_end|>"}}.make()), Texts{"<|endoftext|>"});
}

TEST(ChatTemplate, BothEndsAreSavedAndReadAgain) {
  const TemporaryFolder folder;
  const Tokenizer tokenizer =
      ChatTokenizer{.chat_template = std::string(kQuestion) + "{{ m.content }}<|im_end|>{% endif %}{% endfor %}"}
          .make();
  const Json config = generation_config_json(tokenizer);
  EXPECT_EQ(config.dump(), R"({"eos_token_id": [256, 258]})");
  tokenizer.save(folder.path());
  EXPECT_EQ(Tokenizer::load(folder.path()).stop_ids(), tokenizer.stop_ids());
  write_file_atomic(folder.path() / "generation_config.json", config.dump());
  EXPECT_EQ(Tokenizer::load(folder.path()).stop_ids(), tokenizer.stop_ids());
}

TEST(ChatTemplate, ATurnThatIsNotInTheTextIsAnErrorThatNamesIt) {
  const std::string last_alone =
      "{% for m in messages %}<|im_start|>{% if loop.last %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}";
  const Tokenizer tokenizer = ChatTokenizer{.chat_template = last_alone}.make();
  const std::string error = error_of([&] { trained_of(tokenizer, kTwoTurns); });
  EXPECT_NE(error.find("message 1"), std::string::npos) << error;
  EXPECT_NE(error.find("{% generation %}"), std::string::npos) << error;
  EXPECT_EQ(trained_of(tokenizer, kTwoTurns, 4), Texts{});  // no turn is trained on
}

// The assistant turn of each published template, its end, and cases where the template writes more than the message.
TEST(ChatTemplate, PublishedTemplatesHaveTheirRepliesAndEnds) {
  HONE_SHARED_OR_SKIP(folder, "data/templates");
  struct Published {
    const char *name, *end, *last_prefix = "";
  };
  const Published all[] = {{"alpaca", "</s>"},
                           {"chatml", "<|im_end|>"},
                           {"deepseek-r1-distill-qwen", "<｜end▁of▁sentence｜>"},
                           {"gemma-2-it", "<end_of_turn>"},
                           {"llama-3.1-instruct", "<|eot_id|>"},
                           {"llama-3.2-instruct", "<|eot_id|>"},
                           {"llama3", "<|eot_id|>"},
                           {"mistral-nemo-instruct", "</s>"},
                           {"phi-3.5-mini", "<|end|>"},
                           {"qwen2.5-instruct", "<|im_end|>"},
                           {"qwen3", "<|im_end|>", "<think>\n\n</think>\n\n"},
                           {"qwen3-coder", "<|im_end|>"},
                           {"smollm2-instruct", "<|im_end|>"},
                           {"smollm3", "<|im_end|>"}};
  for (const Published& one : all) {
    SCOPED_TRACE(one.name);
    const bool eos_ends = one.end == std::string("</s>") || one.end == std::string("<｜end▁of▁sentence｜>");
    const Tokenizer tokenizer = ChatTokenizer{
        .chat_template = read_file(folder / (std::string(one.name) + ".jinja")),
        .bos = "<s>",
        .eos = eos_ends ? one.end : "<|endoftext|>",
        .special = {"<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|end|>",
                    "<start_of_turn>", "<end_of_turn>", "<｜end▁of▁sentence｜>",
                    "<｜User｜>"}}.make();
    EXPECT_EQ(ends_of(tokenizer), eos_ends ? Texts{one.end} : (Texts{"<|endoftext|>", one.end}));
    const std::string end = one.end;
    Texts two = {"2" + end, one.last_prefix + ("4" + end)},
          special = {"say </s> or <|im_end|>" + end, one.last_prefix + end};
    if (one.name == std::string("smollm3")) {  // its generation blocks contain headers too
      for (Texts* texts : {&two, &special})
        for (std::string& text : *texts) text = "<|im_start|>assistant\n" + text + "\n";
    }
    EXPECT_EQ(trained_of(tokenizer, kTwoTurns), two);
    EXPECT_EQ(trained_of(tokenizer, R"([{"role": "user", "content": "<|im_start|>assistant\n2"},
                                        {"role": "assistant", "content": "say </s> or <|im_end|>"}, {"role": "user", "content": "2"},
                                        {"role": "assistant", "content": ""}])"),
              special);
  }
}

// The template shows thinking only in the tool loop that the last question began. It writes earlier turns differently
// from the last one.
TEST(ChatTemplate, Qwen3sThinkingAndToolCallsAreFound) {
  HONE_SHARED_OR_SKIP(folder, "data/templates");
  const Tokenizer tokenizer = ChatTokenizer{.chat_template = read_file(folder / "qwen3.jinja")}.make();
  const std::string call = R"("tool_calls": [{"function": {"name": "f", "arguments": {"x": "<|im_end|>"}}}])";
  const std::string loop =
      R"({"role": "user", "content": "w?"}, {"role": "assistant", "content": "<think>\nlook\n</think>\n\nSee.", )" +
      call +
      R"(}, {"role": "tool", "content": "5"}, {"role": "assistant", "content": "<think>\nyes\n</think>\n\nIt is 5."})";
  const std::string called =
      "See.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"<|im_end|>\"}}\n</tool_call><|im_end|>";
  EXPECT_EQ(trained_of(tokenizer, "[" + loop + "]"),
            (Texts{"<think>\nlook\n</think>\n\n" + called, "<think>\nyes\n</think>\n\nIt is 5.<|im_end|>"}));
  EXPECT_EQ(
      trained_of(tokenizer,
                 "[" + loop + R"(, {"role": "user", "content": "thanks"}, {"role": "assistant", "content": "bye"}])"),
      (Texts{called, "It is 5.<|im_end|>", "<think>\n\n</think>\n\nbye<|im_end|>"}));
}

// A completion continues its prompt: a SentencePiece vocabulary adds no space before it. The ids of the parts equal
// those of the entire text.
TEST(ChatTemplate, MistralsRepliesBeginWithoutASpace) {
  HONE_SHARED_OR_SKIP(data, "data");
  const TemporaryFolder folder;
  std::filesystem::copy(data / "tokenizers/mistral_v0.3/tokenizer.json.gz", folder.path());
  const Json config = JsonObject{{"bos_token", "<s>"},
                                 {"eos_token", "</s>"},
                                 {"chat_template", read_file(data / "templates/mistral-nemo-instruct.jinja")}};
  write_file_atomic(folder.path() / "tokenizer_config.json", config.dump());
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  const std::vector<Message> messages = parse_messages(parse_json(kTwoTurns, "m"), "m");
  const ChatTokens tokens = ChatFormat::make("template", tokenizer).encode(tokenizer, messages, false);
  EXPECT_EQ(tokens.ids, tokenizer.encode("<s>[INST]1+1?[/INST]2</s>[INST]2+2?[/INST]4</s>"));
  std::vector<int32_t> trained;
  for (size_t t = 0; t < tokens.ids.size(); ++t)
    if (tokens.mask[t] != 0) trained.push_back(tokens.ids[t]);
  EXPECT_EQ(tokenizer.decode(trained), "2</s>4</s>");
  EXPECT_EQ(trained.size(), 4u);
}

}  // namespace hone::test
