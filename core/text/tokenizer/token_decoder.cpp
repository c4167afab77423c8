#include "core/text/tokenizer/token_decoder.h"

#include <charconv>
#include <utility>

#include "core/text/tokenizer/byte_level.h"
#include "core/text/tokenizer/tokenizer_fields.h"
#include "core/text/unicode/regex.h"

namespace hone {
namespace {

void fuse(std::vector<std::string>& tokens) {
  if (tokens.size() < 2) return;
  std::string text;
  for (const std::string& token : tokens) text += token;
  tokens.clear();
  tokens.push_back(std::move(text));
}

class ByteLevelDecoder : public TokenDecoder {
 public:
  void decode(std::vector<std::string>& tokens, bool) const override {
    // A token that is not spelled in the byte alphabet (an added one) is its own text.
    for (std::string& token : tokens)
      if (auto bytes = unspell_bytes(token)) token = std::move(*bytes);
    fuse(tokens);
  }
};

class ByteFallback : public TokenDecoder {
 public:
  void decode(std::vector<std::string>& tokens, bool) const override {
    for (std::string& token : tokens)
      if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) {
        unsigned byte = 0;
        const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
        if (error == std::errc() && end == token.data() + 5) token.assign(1, static_cast<char>(byte));
      }
  }
};

class FuseDecoder : public TokenDecoder {
 public:
  void decode(std::vector<std::string>& tokens, bool) const override { fuse(tokens); }
};

class StripDecoder : public TokenDecoder {
 public:
  StripDecoder(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void decode(std::vector<std::string>& tokens, bool complete) const override {
    if (!complete) return;
    for (std::string& token : tokens) {
      std::string_view kept = token;
      for (int64_t i = 0; i < start_ && kept.starts_with(content_); ++i) kept.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && kept.ends_with(content_); ++i) kept.remove_suffix(content_.size());
      token = std::string(kept);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class ReplaceDecoder : public TokenDecoder {
 public:
  ReplaceDecoder(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void decode(std::vector<std::string>& tokens, bool) const override {
    for (std::string& token : tokens) token = replace_all(pattern_, token, content_);
  }

 private:
  Regex pattern_;
  std::string content_;
};

class MetaspaceDecoder : public TokenDecoder {
 public:
  MetaspaceDecoder(Regex mark, bool prefixed) : mark_(std::move(mark)), prefixed_(prefixed) {}
  void decode(std::vector<std::string>& tokens, bool complete) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replace_all(mark_, tokens[i], complete && prefixed_ && i == 0 ? "" : " ");
  }

 private:
  Regex mark_;
  bool prefixed_;
};

class DecoderSequence : public TokenDecoder {
 public:
  explicit DecoderSequence(std::vector<std::unique_ptr<TokenDecoder>> parts) : parts_(std::move(parts)) {}
  void decode(std::vector<std::string>& tokens, bool complete) const override {
    const auto bytes = [&tokens] {
      size_t sum = 0;
      for (const std::string& token : tokens) sum += token.size();
      return sum;
    };
    const size_t before = bytes();
    for (const auto& part : parts_) {
      part->decode(tokens, complete);
      check_growth(before, bytes());
    }
  }
  std::vector<std::unique_ptr<TokenDecoder>> take_parts() && { return std::move(parts_); }

 private:
  std::vector<std::unique_ptr<TokenDecoder>> parts_;
};

class SpacedDecoder : public TokenDecoder {
 public:
  void decode(std::vector<std::string>& tokens, bool) const override {
    for (size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, " ");
  }
};

std::unique_ptr<TokenDecoder> make_sequence(const Json& json, const std::string& where) {
  std::vector<std::unique_ptr<TokenDecoder>> parts;
  for (const Json& part : json.at("decoders", where).as_array(where + ".decoders")) {
    const std::string place = concat(where, ".decoders[", parts.size(), "]");
    HONE_CHECK(!part.is_null(), place, ": must be a decoder, not null");
    auto made = make_token_decoder(part, place);
    if (auto* inner = dynamic_cast<DecoderSequence*>(made.get()))
      for (auto& each : std::move(*inner).take_parts()) parts.push_back(std::move(each));
    else
      parts.push_back(std::move(made));
  }
  return std::make_unique<DecoderSequence>(std::move(parts));
}

const bool added = [] {
  auto& all = token_decoders();
  all.add("ByteLevel", [](const Json&, const std::string&) -> std::unique_ptr<TokenDecoder> {
    return std::make_unique<ByteLevelDecoder>();
  });
  all.add("ByteFallback", [](const Json&, const std::string&) -> std::unique_ptr<TokenDecoder> {
    return std::make_unique<ByteFallback>();
  });
  all.add("Fuse", [](const Json&, const std::string&) -> std::unique_ptr<TokenDecoder> {
    return std::make_unique<FuseDecoder>();
  });
  all.add("Strip", [](const Json& json, const std::string& where) -> std::unique_ptr<TokenDecoder> {
    const std::string content = json.at("content", where).as_string(where + ".content");
    HONE_CHECK(!content.empty(), where, ".content is empty");
    return std::make_unique<StripDecoder>(content, int_field(json, "start", 0, where),
                                          int_field(json, "stop", 0, where));
  });
  all.add("Replace", [](const Json& json, const std::string& where) -> std::unique_ptr<TokenDecoder> {
    return std::make_unique<ReplaceDecoder>(pattern_field(json, where),
                                            json.at("content", where).as_string(where + ".content"));
  });
  all.add("Metaspace", [](const Json& json, const std::string& where) -> std::unique_ptr<TokenDecoder> {
    const std::string scheme = string_field(
        json, "prepend_scheme", bool_field(json, "add_prefix_space", true, where) ? "always" : "never", where);
    return std::make_unique<MetaspaceDecoder>(
        Regex::literal(string_field(json, "replacement", "\u2581", where), where + ".replacement"), scheme != "never");
  });
  return all.add("Sequence", make_sequence);
}();

}  // namespace

Registry<TokenDecoderFactory>& token_decoders() {
  static Registry<TokenDecoderFactory> instance("token decoder");
  return instance;
}

std::unique_ptr<TokenDecoder> make_token_decoder(const Json& json, const std::string& where) {
  if (json.is_null()) return std::make_unique<SpacedDecoder>();
  return at_type(token_decoders(), json, where)(json, where);
}

}  // namespace hone
