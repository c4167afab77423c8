#include "core/text/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/text/tokenizer/post_processor.h"
#include "core/text/unicode/unicode.h"

namespace hone {
namespace {

constexpr std::string_view space_mark = "\u2581";
constexpr size_t longest_piece = 1024;

// Reads the fields of one protocol-buffer message in order.
class Wire {
 public:
  Wire(std::string_view bytes, const std::string& source) : rest_(bytes), source_(source) {}

  // Reads the next field's number and value: a number for varints and fixed sizes, bytes for other types. Returns false
  // at the end.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    field = key >> 3;
    HONE_CHECK(field > 0 && field < (uint64_t{1} << 29), source_, ": not a SentencePiece model (field number ", field,
               ")");
    kind_ = static_cast<unsigned>(key & 7);
    number_ = 0;
    bytes_ = {};
    if (kind_ == 0)
      number_ = varint();
    else if (kind_ == 1)
      take(8);
    else if (kind_ == 2)
      bytes_ = take(varint());
    else if (kind_ == 5)
      std::memcpy(&number_, take(4).data(), 4);
    else
      fail(source_, ": not a SentencePiece model (wire type ", kind_, ")");
    return true;
  }
  uint64_t field = 0;

  int64_t integer() const { return static_cast<int64_t>(expect(0).number_); }
  bool boolean() const { return expect(0).number_ != 0; }
  float real() const { return std::bit_cast<float>(static_cast<uint32_t>(expect(5).number_)); }
  std::string_view bytes() const { return expect(2).bytes_; }

 private:
  const Wire& expect(unsigned kind) const {
    HONE_CHECK(kind_ == kind, source_, ": not a SentencePiece model (field ", field, " has wire type ", kind_, ", not ",
               kind, ")");
    return *this;
  }
  std::string_view take(uint64_t count) {
    HONE_CHECK(count <= rest_.size(), source_, ": not a SentencePiece model, or cut short (a field of ", count,
               " bytes, ", rest_.size(), " left)");
    const std::string_view out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return out;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    fail(source_, ": not a SentencePiece model (a number of more than ten bytes)");
  }

  std::string_view rest_, bytes_;
  const std::string& source_;
  unsigned kind_ = 0;
  uint64_t number_ = 0;
};

SentencePiece read_piece(std::string_view bytes, const std::string& where) {
  SentencePiece piece;
  for (Wire wire(bytes, where); wire.next();) {
    if (wire.field == 1) piece.text = wire.bytes();
    if (wire.field == 2) piece.score = wire.real();
    if (wire.field == 3) piece.type = wire.integer();
  }
  HONE_CHECK(!piece.text.empty() && piece.text.size() <= longest_piece, where, ": a piece of ", piece.text.size(),
             " bytes, not 1 to ", longest_piece);
  HONE_CHECK(valid_utf8_prefix(piece.text) == piece.text.size(), where, ": the piece is not valid UTF-8");
  HONE_CHECK(std::isfinite(piece.score), where, ": the score of '", piece.text, "' is not finite");
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& where, SentencePieceModel& model) {
  for (Wire wire(bytes, where); wire.next();) {
    if (wire.field == 3) model.type = wire.integer();
    if (wire.field == 24) model.space_as_suffix = wire.boolean();
    if (wire.field == 35) model.byte_fallback = wire.boolean();
    if (wire.field == 40) model.unk = wire.integer();
    if (wire.field == 41) model.bos = wire.integer();
    if (wire.field == 42) model.eos = wire.integer();
    if (wire.field == 43) model.pad = wire.integer();
  }
}

void read_normalizer(std::string_view bytes, const std::string& where, SentencePieceModel& model) {
  for (Wire wire(bytes, where); wire.next();) {
    if (wire.field == 1) model.rule = wire.bytes();
    if (wire.field == 2) model.character_map = !wire.bytes().empty();
    if (wire.field == 3) model.dummy_prefix = wire.boolean();
    if (wire.field == 4) model.collapse_spaces = wire.boolean();
    if (wire.field == 5) model.mark_spaces = wire.boolean();
  }
}

SentencePieceModel read_model(std::string_view bytes, const std::string& source) {
  SentencePieceModel model;
  for (Wire wire(bytes, source); wire.next();) {
    if (wire.field == 1)
      model.pieces.push_back(read_piece(wire.bytes(), concat(source, ": piece ", model.pieces.size())));
    if (wire.field == 2) read_trainer(wire.bytes(), source + ": trainer_spec", model);
    if (wire.field == 3) read_normalizer(wire.bytes(), source + ": normalizer_spec", model);
  }
  HONE_CHECK(!model.pieces.empty(), source, ": not a SentencePiece model (no pieces)");
  HONE_CHECK(model.type == 2, source, ": trainer_spec.model_type is ", model.type,
             "; only BPE models (2) are supported");
  HONE_CHECK(!model.space_as_suffix, source, ": trainer_spec.treat_whitespace_as_suffix is not supported");
  HONE_CHECK(!model.character_map, source, ": normalizer_spec: the rule '", model.rule,
             "' is not supported; known: identity");
  return model;
}

// SentencePiece merges the adjacent pieces whose union has the best score, the leftmost of equals. As ranks: every
// split of a piece in two, by score of the piece; for one piece the longer left part first.
JsonArray merges_of(const SentencePieceModel& model) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < model.pieces.size(); ++id)
    if (model.pieces[id].type == SentencePiece::normal) ids.emplace(model.pieces[id].text, id);
  struct Merge {
    size_t piece, cut;
  };
  std::vector<Merge> merges;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type != SentencePiece::normal) continue;
    const std::string_view text = model.pieces[id].text;
    for (size_t cut = code_point_at(text, 0).length; cut < text.size(); cut += code_point_at(text, cut).length)
      if (ids.contains(text.substr(0, cut)) && ids.contains(text.substr(cut))) merges.push_back({id, cut});
  }
  std::stable_sort(merges.begin(), merges.end(), [&](const Merge& a, const Merge& b) {
    const float score_a = model.pieces[a.piece].score, score_b = model.pieces[b.piece].score;
    if (score_a != score_b) return score_a > score_b;
    return a.piece != b.piece ? a.piece < b.piece : a.cut > b.cut;
  });
  JsonArray out;
  out.reserve(merges.size());
  for (const auto& [piece, cut] : merges)
    out.push_back(JsonArray{model.pieces[piece].text.substr(0, cut), model.pieces[piece].text.substr(cut)});
  return out;
}

Json replacement(Json pattern, std::string_view content) {
  return JsonObject{{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", content}};
}

Json normalizer_of(const SentencePieceModel& model) {
  JsonArray parts;
  if (model.collapse_spaces) {
    parts.push_back(replacement(JsonObject{{"Regex", "\\A +| +\\z|(?<= ) +"}}, ""));
  }
  if (model.dummy_prefix)
    parts.push_back(JsonObject{{"type", "Prepend"}, {"prepend", model.mark_spaces ? space_mark : " "}});
  if (model.mark_spaces) parts.push_back(replacement(JsonObject{{"String", " "}}, space_mark));
  return JsonObject{{"type", "Sequence"}, {"normalizers", std::move(parts)}};
}

Json decoder_of(const SentencePieceModel& model) {
  JsonArray parts{replacement(JsonObject{{"String", space_mark}}, " "), JsonObject{{"type", "ByteFallback"}},
                  JsonObject{{"type", "Fuse"}}};
  if (model.dummy_prefix) parts.push_back(JsonObject{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return JsonObject{{"type", "Sequence"}, {"decoders", std::move(parts)}};
}

}  // namespace

SentencePieceJson read_sentencepiece(std::string_view bytes, const std::string& source) {
  return sentencepiece_json(read_model(bytes, source));
}

SentencePieceJson sentencepiece_json(const SentencePieceModel& model) {
  const auto piece = [&](int64_t id) -> const SentencePiece* {
    return id >= 0 && id < static_cast<int64_t>(model.pieces.size()) ? &model.pieces[static_cast<size_t>(id)] : nullptr;
  };
  Json config = JsonObject{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto& [key, id] : {std::pair{"bos_token", model.bos},
                                {"eos_token", model.eos},
                                {"pad_token", model.pad},
                                {"unk_token", model.unk}})
    if (piece(id)) config.set(key, piece(id)->text);

  JsonObject vocab;
  JsonArray added;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& p = model.pieces[id];
    if (p.text.empty()) continue;
    vocab.emplace_back(p.text, id);
    if (p.type == SentencePiece::control || p.type == SentencePiece::unknown || p.type == SentencePiece::user_defined)
      added.push_back(JsonObject{{"id", id},
                                 {"content", p.text},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", p.type != SentencePiece::user_defined}});
  }
  const auto frame_token = [&](bool wanted, int64_t id) {
    return wanted && piece(id) ? std::optional(FrameToken{piece(id)->text, id}) : std::nullopt;
  };
  Json post_processor =
      post_processor_json(frame_token(model.add_bos, model.bos), frame_token(model.add_eos, model.eos));
  const SentencePiece* unk = piece(model.unk);
  Json bpe = JsonObject{{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", unk ? Json(unk->text) : Json()},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", true},
                        {"byte_fallback", model.byte_fallback},
                        {"ignore_merges", false},
                        {"vocab", std::move(vocab)},
                        {"merges", merges_of(model)}};
  Json tokenizer = JsonObject{{"version", "1.0"},
                              {"truncation", nullptr},
                              {"padding", nullptr},
                              {"added_tokens", std::move(added)},
                              {"normalizer", normalizer_of(model)},
                              {"pre_tokenizer", nullptr},
                              {"post_processor", std::move(post_processor)},
                              {"decoder", decoder_of(model)},
                              {"model", std::move(bpe)}};
  return {std::move(tokenizer), std::move(config)};
}

}  // namespace hone
