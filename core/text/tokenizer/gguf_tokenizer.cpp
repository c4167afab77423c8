#include "core/text/tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/text/tokenizer/gguf_pre_types.h"
#include "core/text/tokenizer/post_processor.h"
#include "core/text/tokenizer/sentencepiece_model.h"

namespace hone {
namespace {

constexpr std::string_view prefix = "tokenizer.ggml.";
constexpr std::string_view tokens_key = "tokenizer.ggml.tokens";

std::string where_of(const GgufReader& file, std::string_view key) {
  return concat(file.source(), ": key '", key, "'");
}

struct VocabularyToken {
  std::string text;  // empty: the id has no token
  int64_t type = SentencePiece::normal;
  double score = 0;
};

const JsonArray* array_of(const GgufReader& file, const std::string& key, size_t size) {
  const Json* found = file.find(key);
  if (!found) return nullptr;
  const JsonArray& out = found->as_array(where_of(file, key));
  HONE_CHECK(size == 0 || out.size() == size, where_of(file, key), " has ", out.size(), " values, ", tokens_key,
             " has ", size);
  return &out;
}

std::vector<VocabularyToken> read_vocabulary(const GgufReader& file) {
  const JsonArray* tokens = array_of(file, std::string(tokens_key), 0);
  HONE_CHECK(tokens && !tokens->empty(), file.source(), ": no tokenizer: key '", tokens_key, "' is missing or empty");
  const std::string types_key = "tokenizer.ggml.token_type", scores_key = "tokenizer.ggml.scores";
  const JsonArray* types = array_of(file, types_key, tokens->size());
  const JsonArray* scores = array_of(file, scores_key, tokens->size());
  std::vector<VocabularyToken> out(tokens->size());
  for (size_t id = 0; id < out.size(); ++id) {
    VocabularyToken& token = out[id];
    token.text = (*tokens)[id].as_string(concat(where_of(file, tokens_key), "[", id, "]"));
    if (types) token.type = (*types)[id].as_int(concat(where_of(file, types_key), "[", id, "]"));
    if (scores) token.score = (*scores)[id].as_double(concat(where_of(file, scores_key), "[", id, "]"));
    HONE_CHECK(std::isfinite(token.score), where_of(file, scores_key), "[", id, "] is not finite");
    // What converters write for ids without a token.
    const bool filler = token.text == concat("[PAD", id, "]") || token.text == concat("[EMPTY_", id, "]");
    if (filler && token.type == SentencePiece::unused) token.text.clear();
  }
  return out;
}

// The id of tokenizer.ggml.NAME_token_id, if there is one with a token.
std::optional<int64_t> token_id(const GgufReader& file, std::string_view name, size_t num_tokens) {
  const std::string key = concat(prefix, name, "_token_id");
  if (!file.find(key)) return std::nullopt;
  const int64_t id = file.integer(key, -1);
  if (id == -1 || id == UINT32_MAX) return std::nullopt;  // written for "none"
  HONE_CHECK(id >= 0 && id < static_cast<int64_t>(num_tokens), where_of(file, key), " is ", id,
             ", but the vocabulary has ", num_tokens, " tokens");
  return id;
}

struct SpecialIds {
  std::optional<int64_t> bos, eos, unk, pad;
};

SpecialIds special_ids(const GgufReader& file, const std::vector<VocabularyToken>& vocabulary) {
  SpecialIds out{.bos = token_id(file, "bos", vocabulary.size()),
                 .eos = token_id(file, "eos", vocabulary.size()),
                 .unk = token_id(file, "unknown", vocabulary.size()),
                 .pad = token_id(file, "padding", vocabulary.size())};
  for (auto* id : {&out.bos, &out.eos, &out.unk, &out.pad})
    if (*id && vocabulary[static_cast<size_t>(**id)].text.empty()) id->reset();
  return out;
}

// tokenizer_config.json's special tokens.
Json config_of(const SpecialIds& ids, const std::vector<VocabularyToken>& vocabulary) {
  Json out = JsonObject{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto& [key, id] :
       {std::pair{"bos_token", ids.bos}, {"eos_token", ids.eos}, {"unk_token", ids.unk}, {"pad_token", ids.pad}})
    if (id) out.set(key, vocabulary[static_cast<size_t>(*id)].text);
  out.set("clean_up_tokenization_spaces", false);
  return out;
}

SentencePieceJson read_pieces(const GgufReader& file, std::vector<VocabularyToken> vocabulary) {
  HONE_CHECK(file.find("tokenizer.ggml.scores"), file.source(),
             ": key 'tokenizer.ggml.scores' is missing; a tokenizer of the model 'llama' needs it");
  const SpecialIds ids = special_ids(file, vocabulary);
  SentencePieceModel model;
  model.type = 2;
  model.collapse_spaces = false;
  model.dummy_prefix = file.flag("tokenizer.ggml.add_space_prefix", true);
  model.add_bos = file.flag("tokenizer.ggml.add_bos_token", true);
  model.add_eos = file.flag("tokenizer.ggml.add_eos_token", false);
  model.bos = ids.bos.value_or(-1), model.eos = ids.eos.value_or(-1);
  model.unk = ids.unk.value_or(-1), model.pad = ids.pad.value_or(-1);
  for (VocabularyToken& token : vocabulary) {
    model.byte_fallback = model.byte_fallback || token.type == SentencePiece::byte;
    model.pieces.push_back({std::move(token.text), static_cast<float>(token.score), token.type});
  }
  return sentencepiece_json(model);
}

Json added_token(size_t id, const VocabularyToken& token) {
  return JsonObject{{"id", id},
                    {"content", token.text},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", token.type != SentencePiece::user_defined}};
}

SentencePieceJson read_bpe(const GgufReader& file, const std::vector<VocabularyToken>& vocabulary) {
  const std::string pre_key = "tokenizer.ggml.pre", merges_key = "tokenizer.ggml.merges";
  const GgufPreType& pre = gguf_pre_type(file.text(pre_key, "default"), where_of(file, pre_key));
  const JsonArray* merges = array_of(file, merges_key, 0);
  HONE_CHECK(merges, file.source(), ": key '", merges_key, "' is missing; a tokenizer of the model 'gpt2' needs it");
  const SpecialIds ids = special_ids(file, vocabulary);
  JsonObject vocab;
  JsonArray added;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const VocabularyToken& token = vocabulary[id];
    if (token.text.empty()) continue;
    const bool is_added = token.type == SentencePiece::control || token.type == SentencePiece::user_defined ||
                          token.type == SentencePiece::unknown;
    if (is_added) added.push_back(added_token(id, token));
    vocab.emplace_back(token.text, id);
  }
  const auto frame_token = [&](const char* key, bool fallback, std::optional<int64_t> id) {
    const bool wanted = file.flag(key, fallback) && id;
    return wanted ? std::optional(FrameToken{vocabulary[static_cast<size_t>(*id)].text, *id}) : std::nullopt;
  };
  Json model = JsonObject{{"type", "BPE"},
                          {"dropout", nullptr},
                          {"unk_token", nullptr},
                          {"continuing_subword_prefix", nullptr},
                          {"end_of_word_suffix", nullptr},
                          {"fuse_unk", false},
                          {"byte_fallback", false},
                          {"ignore_merges", pre.ignore_merges},
                          {"vocab", std::move(vocab)},
                          {"merges", *merges}};
  const Json byte_level =
      JsonObject{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  Json tokenizer = JsonObject{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", pre.nfc ? Json(JsonObject{{"type", "NFC"}}) : Json()},
      {"pre_tokenizer", pre.pre_tokenizer},
      {"post_processor", post_processor_json(frame_token("tokenizer.ggml.add_bos_token", pre.add_bos, ids.bos),
                                             frame_token("tokenizer.ggml.add_eos_token", false, ids.eos))},
      {"decoder", byte_level},
      {"model", std::move(model)}};
  return {std::move(tokenizer), config_of(ids, vocabulary)};
}

// The chat template, and those with a name ("tool_use"), as tokenizer_config.json has them.
void read_templates(const GgufReader& file, TokenizerFiles& out) {
  constexpr std::string_view key = "tokenizer.chat_template";
  out.chat_template = file.text(key, "");
  out.chat_template_source = where_of(file, key);
  JsonArray named;
  if (!out.chat_template.empty()) named.push_back(JsonObject{{"name", "default"}, {"template", out.chat_template}});
  for (const auto& [member, value] : file.metadata().as_object()) {
    if (!member.starts_with(concat(key, "."))) continue;
    const std::string name = member.substr(key.size() + 1), &text = value.as_string(where_of(file, member));
    named.push_back(JsonObject{{"name", name}, {"template", text}});
    add_named_template(out, name, text, where_of(file, member));
  }
  if (named.size() > 1)
    out.config.set("chat_template", std::move(named));
  else if (!out.chat_template.empty())
    out.config.set("chat_template", out.chat_template);
}

}  // namespace

bool has_gguf_tokenizer(const GgufReader& file) { return file.find(tokens_key) != nullptr; }

TokenizerFiles read_gguf_tokenizer(const GgufReader& file) {
  const std::string key = "tokenizer.ggml.model";
  HONE_CHECK(file.find(key), where_of(file, key), " is missing");
  const std::string kind = file.text(key, "");
  HONE_CHECK(kind == "gpt2" || kind == "llama", where_of(file, key), " is '", kind,
             "'; supported are gpt2 (BPE) and llama (SentencePiece)");
  std::vector<VocabularyToken> vocabulary = read_vocabulary(file);
  TokenizerFiles out;
  out.source = file.source();
  SentencePieceJson read = kind == "gpt2" ? read_bpe(file, vocabulary) : read_pieces(file, std::move(vocabulary));
  out.tokenizer = std::move(read.tokenizer);
  out.config = std::move(read.config);
  out.generation = gguf_generation_config(file);
  read_templates(file, out);
  return out;
}

Json gguf_generation_config(const GgufReader& file) {
  const JsonArray* tokens = array_of(file, std::string(tokens_key), 0);
  const std::string kind = file.text("tokenizer.ggml.model", "none");
  HONE_CHECK(tokens || kind == "none" || kind == "no_vocab", where_of(file, tokens_key), " is missing");
  const size_t count = tokens ? tokens->size() : 0;
  Json out = JsonObject{};
  if (const auto bos = token_id(file, "bos", count)) out.set("bos_token_id", *bos);
  JsonArray ends;
  for (const char* name : {"eos", "eot", "eom"})
    if (const auto id = token_id(file, name, count))
      if (std::ranges::find(ends, Json(*id)) == ends.end()) ends.push_back(*id);
  if (!ends.empty()) out.set("eos_token_id", ends.size() == 1 ? ends[0] : Json(ends));
  if (const auto pad = token_id(file, "padding", count)) out.set("pad_token_id", *pad);
  bool samples = false;
  for (const auto& [key, name] : {std::pair{"general.sampling.temp", "temperature"},
                                  {"general.sampling.top_k", "top_k"},
                                  {"general.sampling.top_p", "top_p"},
                                  {"general.sampling.min_p", "min_p"},
                                  {"general.sampling.penalty_repeat", "repetition_penalty"}})
    if (const Json* value = file.find(key); value && value->is_number()) {
      out.set(name, *value);
      samples = true;
    }
  if (samples) out.set("do_sample", true);
  return out;
}

}  // namespace hone
