#include "core/text/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <unordered_set>

#include "core/text/tokenizer/tokenizer_fields.h"

namespace hone {
namespace {

int32_t checked_id(const Json& json, size_t num_tokens, const std::string& where) {
  const int64_t id = json.as_int(where);
  const int64_t limit = std::min<int64_t>(static_cast<int64_t>(num_tokens) * 8 + 65536, INT32_MAX);
  HONE_CHECK(id >= 0 && id < limit, where, ": id ", id, " is out of range: ", num_tokens, " tokens have ids from 0 to ",
             limit - 1, " at most");
  return static_cast<int32_t>(id);
}

std::vector<std::string> read_vocab(const JsonObject& vocab, size_t num_tokens, const std::string& source) {
  std::vector<std::string> spellings;
  std::unordered_set<std::string_view> seen;
  for (const auto& [spelling, value] : vocab) {
    const std::string where = source + ": model.vocab['" + spelling + "']";
    HONE_CHECK(!spelling.empty(), source, ": model.vocab: a token with an empty spelling");
    HONE_CHECK(seen.insert(spelling).second, where, " is given twice");
    const auto id = static_cast<size_t>(checked_id(value, num_tokens, where));
    if (id >= spellings.size()) spellings.resize(id + 1);
    HONE_CHECK(spellings[id].empty(), where, ": id ", id, " is '", spellings[id], "' already");
    spellings[id] = spelling;
  }
  return spellings;
}

std::vector<Bpe::Merge> read_merges(const JsonArray& json, const std::string& source) {
  std::vector<Bpe::Merge> merges;
  merges.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    const auto where = [&] { return concat(source, ": model.merges[", i, "]"); };
    Bpe::Merge merge;
    if (json[i].is_string()) {
      const std::string& line = json[i].as_string();
      const size_t space = line.find(' ');
      HONE_CHECK(space != std::string::npos && line.find(' ', space + 1) == std::string::npos, where(), ": '", line,
                 "' is not two spellings with one space between");
      merge = {line.substr(0, space), line.substr(space + 1)};
    } else {
      const JsonArray& pair = json[i].is_array() ? json[i].as_array() : json[i].as_array(where());
      HONE_CHECK(pair.size() == 2, where(), " has ", pair.size(), " parts; it must have two");
      merge = {pair[0].as_string(where()), pair[1].as_string(where())};
    }
    HONE_CHECK(!merge.first.empty() && !merge.second.empty(), where(), ": a part is empty");
    merges.push_back(std::move(merge));
  }
  return merges;
}

std::vector<AddedToken> read_added(const JsonArray& json, size_t num_tokens, const std::string& source) {
  std::vector<AddedToken> added;
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string where = concat(source, ": added_tokens[", i, "]");
    json[i].as_object(where);
    AddedToken token;
    token.content = json[i].at("content", where).as_string(where + ".content");
    token.id = checked_id(json[i].at("id", where), num_tokens, where + ".id");
    token.special = bool_field(json[i], "special", false, where);
    token.single_word = bool_field(json[i], "single_word", false, where);
    token.lstrip = bool_field(json[i], "lstrip", false, where);
    token.rstrip = bool_field(json[i], "rstrip", false, where);
    token.normalized = bool_field(json[i], "normalized", !token.special, where);
    added.push_back(std::move(token));
  }
  return added;
}

void check_added(const std::vector<AddedToken>& added, const Bpe& model, int32_t vocab_size,
                 const std::string& source) {
  std::vector<const AddedToken*> owner(static_cast<size_t>(vocab_size));
  const auto& spellings = model.spellings();
  for (const AddedToken& token : added) {
    const auto id = static_cast<size_t>(token.id);
    std::string_view other;
    if (id < spellings.size()) other = spellings[id];
    if (owner[id]) other = owner[id]->content;
    HONE_CHECK(other.empty() || other == token.content, source, ": added_tokens: '", token.content, "' has id ", id,
               ", which is '", other, "'");
    const int32_t known = model.find(token.content);
    HONE_CHECK(known < 0 || known == token.id, source, ": added_tokens: '", token.content, "' has id ", id, ", but ",
               known, " in model.vocab");
    owner[id] = &token;
  }
}

BpeOptions read_options(const Json& model, const std::string& where) {
  BpeOptions options;
  options.unk_token = string_field(model, "unk_token", "", where);
  options.fuse_unk = bool_field(model, "fuse_unk", false, where);
  options.byte_fallback = bool_field(model, "byte_fallback", false, where);
  options.ignore_merges = bool_field(model, "ignore_merges", false, where);
  options.continuing_subword_prefix = string_field(model, "continuing_subword_prefix", "", where);
  options.end_of_word_suffix = string_field(model, "end_of_word_suffix", "", where);
  const Json* dropout = model.find("dropout");
  HONE_CHECK(!dropout || dropout->is_null() || dropout->as_double(where + ".dropout") == 0, where,
             ".dropout: only null is supported");
  return options;
}

const Json& member(const Json& json, std::string_view key) {
  static const Json null;
  const Json* found = json.find(key);
  return found ? *found : null;
}

bool spelled_apart(const Bpe::Merge& merge) {
  return merge.first.find(' ') == std::string::npos && merge.second.find(' ') == std::string::npos;
}

}  // namespace

TokenizerParts read_tokenizer_json(const Json& json, const std::string& source) {
  json.as_object(source);
  const std::string in_model = source + ": model";
  const Json& model = json.at("model", source);
  model.as_object(in_model);
  const std::string type = string_field(model, "type", "BPE", in_model);
  HONE_CHECK(type == "BPE", in_model, ".type: '", type, "' is not supported; known: BPE");
  const JsonObject& vocab = model.at("vocab", in_model).as_object(in_model + ".vocab");
  const Json& added = member(json, "added_tokens");
  const size_t num_tokens = vocab.size() + (added.is_null() ? 0 : added.as_array(source + ": added_tokens").size());

  TokenizerParts parts;
  if (!added.is_null()) parts.added = read_added(added.as_array(), num_tokens, source);
  const auto merges = read_merges(model.at("merges", in_model).as_array(in_model + ".merges"), source);
  parts.model =
      std::make_unique<Bpe>(read_vocab(vocab, num_tokens, source), merges, read_options(model, in_model), source);
  parts.vocab_size = static_cast<int32_t>(parts.model->spellings().size());
  for (const AddedToken& token : parts.added) parts.vocab_size = std::max(parts.vocab_size, token.id + 1);
  check_added(parts.added, *parts.model, parts.vocab_size, source);
  parts.normalizer = make_normalizer(member(json, "normalizer"), source + ": normalizer");
  parts.pre_tokenizer = make_pre_tokenizer(member(json, "pre_tokenizer"), source + ": pre_tokenizer");
  parts.decoder = make_token_decoder(member(json, "decoder"), source + ": decoder");
  read_post_processor(member(json, "post_processor"), source + ": post_processor", parts.frame);
  for (const auto* side : {&parts.frame.before, &parts.frame.after})
    for (const int32_t id : *side)
      HONE_CHECK(id < parts.vocab_size, source, ": post_processor: id ", id, ", but the vocabulary ends at ",
                 parts.vocab_size - 1);

  parts.document = JsonObject{};
  for (const auto& [key, value] : json.as_object())
    if (key != "model") parts.document.set(key, key == "added_tokens" ? Json() : value);
  Json rest = JsonObject{};
  for (const auto& [key, value] : model.as_object())
    if (key != "vocab" && key != "merges") rest.set(key, value);
  parts.document.set("model", std::move(rest));
  return parts;
}

Json write_tokenizer_json(const TokenizerParts& parts) {
  JsonArray added;
  for (const AddedToken& t : parts.added)
    added.push_back(JsonObject{{"id", int64_t{t.id}},
                               {"content", t.content},
                               {"single_word", t.single_word},
                               {"lstrip", t.lstrip},
                               {"rstrip", t.rstrip},
                               {"normalized", t.normalized},
                               {"special", t.special}});
  JsonObject vocab;
  const auto& spellings = parts.model->spellings();
  for (size_t id = 0; id < spellings.size(); ++id)
    if (!spellings[id].empty()) vocab.emplace_back(spellings[id], id);
  // Every version of Hugging Face's library reads merges as one string; newer ones also read pairs of strings, and only
  // pairs can have spaces.
  const auto pairs = parts.model->merges();
  const bool as_lines = std::all_of(pairs.begin(), pairs.end(), spelled_apart);
  JsonArray merges;
  merges.reserve(pairs.size());
  for (const auto& [left, right] : pairs)
    merges.push_back(as_lines ? Json(left + " " + right) : Json(JsonArray{left, right}));

  Json out = parts.document;
  out.set("added_tokens", std::move(added));
  Json model = out.at("model");
  model.set("vocab", std::move(vocab));
  model.set("merges", std::move(merges));
  out.set("model", std::move(model));
  return out;
}

}  // namespace hone
