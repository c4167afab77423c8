// Real tokenizers compared with ids of other programs. Skipped without the shared material.
#include <gtest/gtest.h>

#include <set>

#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "core/text/tokenizer/bpe_train.h"
#include "core/text/tokenizer/tokenizer.h"
#include "tests/support/support.h"

namespace hone {
namespace {

std::vector<int32_t> ids_of(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : json.as_array("ids")) ids.push_back(static_cast<int32_t>(id.as_int("id")));
  return ids;
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

std::function<bool(std::string&)> once(std::string text) {
  return [text = std::move(text), given = false](std::string& out) mutable {
    if (given) return false;
    out = text;
    return given = true;
  };
}

struct Vocabulary {
  const char* pairs;  // the name in llama_cpp_pairs.jsonl
  const char* file;
};

class LlamaCppPairs : public testing::TestWithParam<Vocabulary> {};

TEST_P(LlamaCppPairs, EveryTextHasTheReferenceIds) {
  HONE_SHARED_OR_SKIP(folder, "data/tokenizers");
  const Tokenizer tokenizer = Tokenizer::load(folder / GetParam().file);
  int pairs = 0;
  read_jsonl(folder / "llama_cpp_pairs.jsonl", [&](const Json& row, int64_t line) {
    if (row.at("vocab").as_string() != GetParam().pairs) return;
    const std::string& text = row.at("text").as_string();
    EXPECT_EQ(tokenizer.encode(text), ids_of(row.at("ids"))) << "line " << line << ": " << text;
    ++pairs;
  });
  EXPECT_GE(pairs, 40);
}

INSTANTIATE_TEST_SUITE_P(, LlamaCppPairs,
                         testing::Values(Vocabulary{"gpt-2", "gpt2"}, Vocabulary{"gpt-2", "gpt2/vocab.json"},
                                         Vocabulary{"llama-bpe", "llama3"}, Vocabulary{"qwen2", "qwen2"},
                                         Vocabulary{"deepseek-r1-qwen", "qwen2"}, Vocabulary{"llama-spm", "llama2"},
                                         Vocabulary{"phi-3", "llama2/tokenizer.model"}),
                         [](const auto& given) {
                           std::string name = std::string(given.param.pairs) + "_" + given.param.file;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(SharedTokenizers, MistralEncodesAndDecodesAsRecorded) {
  HONE_SHARED_OR_SKIP(folder, "data/tokenizers/mistral_v0.3");
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const Json recorded = parse_json(read_file(folder / "encodings.json"), "encodings.json");
  for (const Json& entry : recorded.at("entries").as_array()) {
    const std::string& text = entry.at("text").as_string();
    const std::vector<int32_t> ids = ids_of(entry.at("ids"));
    EXPECT_EQ(tokenizer.encode(text), ids) << text;
    EXPECT_EQ(tokenizer.encode_document(text), ids_of(entry.at("ids_special"))) << text;
    EXPECT_EQ(tokenizer.decode(ids), entry.at("decode").as_string()) << text;
  }
}

TEST(SharedTokenizers, Gpt2EncodesTheRecordedCases) {
  HONE_SHARED_OR_SKIP(vectors, "vectors/a1/gpt2_tokenizer.json");
  HONE_SHARED_OR_SKIP(gpt2, "data/tokenizers/gpt2/tokenizer.json");
  const Json document = parse_json(read_file(gpt2), "tokenizer.json");
  int cases = 0;
  const Json recorded = parse_json(read_file(vectors), "vectors");
  for (const Json& entry : recorded.at("cases").as_array()) {
    Json json = document;
    JsonArray added;
    for (const auto& [content, id] : entry.at("special_tokens").as_object())
      added.push_back(JsonObject{{"id", id}, {"content", content}, {"special", true}});
    json.set("added_tokens", std::move(added));
    const Tokenizer tokenizer = Tokenizer::from_json(json, "gpt2");
    const std::string& text = entry.at("text").as_string();
    const auto ids = tokenizer.encode(text);
    EXPECT_EQ(ids, ids_of(entry.at("ids"))) << entry.at("name").as_string();
    EXPECT_EQ(tokenizer.decode(ids), text);
    ++cases;
  }
  EXPECT_GE(cases, 10);
}

TEST(SharedTokenizers, TrainingReproducesTheReferenceMergesAndVocabulary) {
  HONE_SHARED_OR_SKIP(vectors, "vectors/a1/bpe_train_corpus_en.json");
  HONE_SHARED_OR_SKIP(corpus, "data/parity/cs336_bpe/corpus.en");
  const Json expected = parse_json(read_file(vectors), "bpe_train_corpus_en.json");
  BpeTrainOptions options;
  options.vocab_size = expected.at("vocab_size").as_int();
  for (const Json& token : expected.at("special_tokens").as_array())
    options.special_tokens.push_back(token.as_string());
  for (const std::string& pattern : {std::string(), expected.at("pretokenizer").as_string()}) {
    options.pattern = pattern;
    const BpeTrainResult result = train_bpe(once(read_file(corpus)), options);
    const JsonArray& merges = expected.at("merges_hex").as_array();
    ASSERT_EQ(result.merges.size(), merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      EXPECT_EQ(result.merges[i].first, from_hex(merges[i].as_array()[0].as_string())) << i;
      EXPECT_EQ(result.merges[i].second, from_hex(merges[i].as_array()[1].as_string())) << i;
    }
    // The reference does not fix the id of a byte string.
    std::set<std::string> vocab;
    for (const auto& [id, bytes] : expected.at("vocab_hex").as_object()) vocab.insert(from_hex(bytes.as_string()));
    EXPECT_EQ(std::set<std::string>(result.vocab.begin(), result.vocab.end()), vocab);
    EXPECT_EQ(result.vocab.size(), vocab.size());
  }
}

TEST(SharedTokenizers, CharacterTableHasTheIdsItsModelWasMadeWith) {
  HONE_SHARED_OR_SKIP(folder, "data/weights/verl_random_llama");
  const Tokenizer tokenizer = Tokenizer::load(folder);
  EXPECT_EQ(tokenizer.vocab_size(), 16);
  EXPECT_EQ(tokenizer.encode("09,:"), (std::vector<int32_t>{4, 13, 14, 15}));
  EXPECT_EQ(tokenizer.encode("5SxE"), (std::vector<int32_t>{9, 0, 3, 1}));
  EXPECT_EQ(tokenizer.eos(), 1);
  EXPECT_EQ(tokenizer.pad(), 2);
  EXPECT_EQ(tokenizer.special_token("sep_token"), "S");
  EXPECT_FALSE(tokenizer.chat_template().empty());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("12,3:9"), true), "12,3:9");
}

TEST(SharedTokenizers, Stories260kEncodesItsReferencePrompt) {
  HONE_SHARED_OR_SKIP(folder, "data/weights/stories260K");
  const Tokenizer tokenizer = Tokenizer::load(folder);
  EXPECT_EQ(tokenizer.vocab_size(), 512);
  EXPECT_EQ(tokenizer.bos(), 1);
  EXPECT_EQ(tokenizer.eos(), 2);
  EXPECT_EQ(tokenizer.encode_document("Once upon a time"), (std::vector<int32_t>{1, 403, 407, 261, 378}));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{403, 407, 261, 378}), "Once upon a time");
}

TEST(SharedTokenizers, SavedAgainTheyGiveTheSameIds) {
  HONE_SHARED_OR_SKIP(folder, "data/tokenizers");
  std::vector<std::string> texts;
  read_jsonl(folder / "llama_cpp_pairs.jsonl", [&](const Json& row, int64_t) {
    if (row.at("vocab").as_string() == "gpt-2") texts.push_back(row.at("text").as_string() + "<|endoftext|><s> a</s>");
  });
  for (const char* name : {"gpt2", "llama2", "mistral_v0.3", "tinystories_10k"}) {
    const Tokenizer loaded = Tokenizer::load(folder / name);
    const test::TemporaryFolder to;
    loaded.save(to.path());
    const Tokenizer again = Tokenizer::load(to.path());
    EXPECT_EQ(again.vocab_size(), loaded.vocab_size());
    for (const std::string& text : texts) {
      EXPECT_EQ(again.encode(text), loaded.encode(text)) << name << ": " << text;
      EXPECT_EQ(again.encode_document(text), loaded.encode_document(text)) << name;
      EXPECT_EQ(again.decode(again.encode(text)), loaded.decode(loaded.encode(text))) << name;
    }
  }
}

}  // namespace
}  // namespace hone
