#include "core/text/tokenizer/gguf_tokenizer_write.h"

#include <algorithm>
#include <unordered_map>

#include "core/base/log.h"
#include "core/text/tokenizer/gguf_pre_types.h"
#include "core/text/tokenizer/sentencepiece_model.h"
#include "core/text/tokenizer/tokenizer.h"
#include "core/text/tokenizer/tokenizer_files.h"
#include "core/text/tokenizer/tokenizer_json.h"

namespace hone {
namespace {

// Whether a step of the type is in a member of tokenizer.json, at any depth.
bool has_step(const Json& json, std::string_view type) {
  if (json.is_array())
    return std::ranges::any_of(json.as_array(), [&](const Json& part) { return has_step(part, type); });
  if (!json.is_object()) return false;
  const Json* own = json.find("type");
  if (own && own->is_string() && own->as_string() == type) return true;
  return std::ranges::any_of(json.as_object(), [&](const auto& member) { return has_step(member.second, type); });
}

bool has_step(const Json& json, std::string_view member, std::string_view type) {
  const Json* found = json.find(member);
  return found && has_step(*found, type);
}

bool is_byte_token(std::string_view text) { return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>'); }

// Tokens and their types by id, filled up to vocab_size.
std::vector<SentencePiece> pieces_of(const TokenizerParts& parts, int64_t vocab_size, const std::string& unknown,
                                     bool byte_tokens, const std::string& source) {
  HONE_CHECK(parts.vocab_size <= vocab_size, source, ": the tokenizer has ids up to ", parts.vocab_size - 1,
             ", the model's vocabulary has only ", vocab_size);
  std::vector<SentencePiece> out(static_cast<size_t>(vocab_size));
  const std::vector<std::string>& spellings = parts.model->spellings();
  for (size_t id = 0; id < spellings.size(); ++id) {
    out[id].text = spellings[id];
    if (byte_tokens && is_byte_token(spellings[id])) out[id].type = SentencePiece::byte;
  }
  for (const AddedToken& token : parts.added) {
    SentencePiece& piece = out[static_cast<size_t>(token.id)];
    piece.text = token.content;
    piece.type = token.special ? SentencePiece::control : SentencePiece::user_defined;
    if (byte_tokens && token.content == unknown) piece.type = SentencePiece::unknown;
  }
  for (size_t id = 0; id < out.size(); ++id)
    if (out[id].text.empty()) {
      out[id].text = concat("[PAD", id, "]");
      out[id].type = SentencePiece::unused;
    }
  return out;
}

void write_pieces(const std::vector<SentencePiece>& pieces, bool scores, GgufWriter& out) {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> numbers;
  for (const SentencePiece& piece : pieces) {
    texts.push_back(piece.text);
    types.push_back(static_cast<int32_t>(piece.type));
    numbers.push_back(piece.score);
  }
  out.set_texts("tokenizer.ggml.tokens", texts);
  if (scores) out.set_f32s("tokenizer.ggml.scores", numbers);
  out.set_i32s("tokenizer.ggml.token_type", types);
}

void write_bpe(const TokenizerFiles& files, const TokenizerParts& parts, int64_t vocab_size, GgufWriter& out) {
  const GgufPreType* pre = find_gguf_pre_type(files.tokenizer);
  HONE_CHECK(pre, files.source,
             ": llama.cpp has no pre-tokenizer like the tokenizer's pre_tokenizer; a tokenizer of "
             "GPT-2, Llama 3, Qwen2, SmolLM, Mistral or DeepSeek can be written");
  out.set_text("tokenizer.ggml.model", "gpt2");
  out.set_text("tokenizer.ggml.pre", pre->names.front());
  write_pieces(pieces_of(parts, vocab_size, "", false, files.source), false, out);
  std::vector<std::string> merges;
  for (const auto& [left, right] : parts.model->merges()) {
    HONE_CHECK(left.find(' ') == std::string::npos && right.find(' ') == std::string::npos, files.source,
               ": the merge '", left, "' + '", right, "' has a space, which GGUF cannot express");
    merges.push_back(left + " " + right);
  }
  out.set_texts("tokenizer.ggml.merges", merges);
}

// A token's score is minus the rank of the first merge that makes it, so that SentencePiece merges in the same order.
void set_scores(const TokenizerParts& parts, std::vector<SentencePiece>& pieces) {
  std::unordered_map<std::string, size_t> rank_of;
  const std::vector<Bpe::Merge> merges = parts.model->merges();
  for (size_t rank = 0; rank < merges.size(); ++rank) rank_of.emplace(merges[rank].first + merges[rank].second, rank);
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].type != SentencePiece::normal) continue;
    const auto found = rank_of.find(pieces[id].text);
    pieces[id].score = -static_cast<float>(found == rank_of.end() ? merges.size() + id : found->second);
  }
}

void write_sentencepiece(const TokenizerFiles& files, const TokenizerParts& parts, int64_t vocab_size,
                         GgufWriter& out) {
  const Json& json = files.tokenizer;
  const Json* unknown = json.at("model", files.source).find("unk_token");
  std::vector<SentencePiece> pieces =
      pieces_of(parts, vocab_size, unknown && unknown->is_string() ? unknown->as_string() : "", true, files.source);
  set_scores(parts, pieces);
  SentencePieceModel model;
  model.pieces = pieces;
  model.type = 2;
  const Json made = sentencepiece_json(model).tokenizer;
  const TokenizerParts again = read_tokenizer_json(made, files.source);
  if (again.model->merges() != parts.model->merges())
    log::warning(files.source,
                 ": the order of merges is not that of SentencePiece; llama.cpp may split some texts in "
                 "another way");
  const Json* scheme = json.find("pre_tokenizer");
  const bool never = scheme && scheme->is_object() && scheme->find("prepend_scheme") &&
                     *scheme->find("prepend_scheme") == Json("never");
  const bool prefix =
      has_step(json, "normalizer", "Prepend") || (has_step(json, "pre_tokenizer", "Metaspace") && !never);
  out.set_text("tokenizer.ggml.model", "llama");
  out.set_text("tokenizer.ggml.pre", "default");
  out.set_flag("tokenizer.ggml.add_space_prefix", prefix);
  write_pieces(pieces, true, out);
}

void write_templates(const TokenizerFiles& files, GgufWriter& out) {
  if (!files.chat_template.empty()) out.set_text("tokenizer.chat_template", files.chat_template);
  const Json* all = files.config.find("chat_template");
  if (!all || !all->is_array()) return;
  std::vector<std::string> names;
  for (const Json& entry : all->as_array()) {
    const std::string name = entry.at("name", "chat_template").as_string("chat_template.name");
    if (name == "default") continue;
    names.push_back(name);
    out.set_text("tokenizer.chat_template." + name,
                 entry.at("template", "chat_template").as_string("chat_template.template"));
  }
  if (!names.empty()) out.set_texts("tokenizer.chat_templates", names);
}

}  // namespace

void write_gguf_tokenizer(const std::filesystem::path& path, int64_t vocab_size, GgufWriter& out) {
  const TokenizerFiles files = read_tokenizer_files(path);
  const TokenizerParts parts = read_tokenizer_json(files.tokenizer, files.source);
  const bool spaces_marked = has_step(files.tokenizer, "normalizer", "Replace") ||
                             has_step(files.tokenizer, "normalizer", "Prepend") ||
                             has_step(files.tokenizer, "pre_tokenizer", "Metaspace");
  if (has_step(files.tokenizer, "pre_tokenizer", "ByteLevel"))
    write_bpe(files, parts, vocab_size, out);
  else if (spaces_marked)
    write_sentencepiece(files, parts, vocab_size, out);
  else
    fail(files.source, ": the tokenizer is neither byte-level BPE nor SentencePiece's BPE; GGUF has no such tokenizer");
  const Tokenizer tokenizer = Tokenizer::load(path);
  const auto set_id = [&](const char* name, std::optional<int32_t> id) {
    if (id) out.set_u32(concat("tokenizer.ggml.", name, "_token_id"), *id);
  };
  // A tokenizer.json without tokenizer_config.json names the ends in its post-processor only.
  const auto first_of = [](std::optional<int32_t> id, const std::vector<int32_t>& frame) {
    return id || frame.empty() ? id : std::optional(frame.front());
  };
  const std::optional<int32_t> bos = first_of(tokenizer.bos(), parts.frame.before),
                               eos = first_of(tokenizer.eos(), parts.frame.after);
  set_id("bos", bos);
  set_id("eos", eos);
  // Other ids that end a generation.
  std::vector<int32_t> ends = tokenizer.stop_ids();
  std::erase_if(ends, [&](int32_t id) { return id == eos; });
  if (!ends.empty()) set_id("eot", ends[0]);
  if (ends.size() > 1) set_id("eom", ends[1]);
  set_id("unknown", tokenizer.find(tokenizer.special_token("unk_token")));
  set_id("padding", tokenizer.pad());
  const auto has = [](const std::vector<int32_t>& ids, std::optional<int32_t> id) {
    return id && std::ranges::find(ids, *id) != ids.end();
  };
  out.set_flag("tokenizer.ggml.add_bos_token", has(parts.frame.before, bos));
  out.set_flag("tokenizer.ggml.add_eos_token", has(parts.frame.after, eos));
  write_templates(files, out);
}

}  // namespace hone
