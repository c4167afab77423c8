#include "core/text/tokenizer/gguf_pre_types.h"

#include <algorithm>
#include <optional>

#include "core/base/suggest.h"
#include "core/text/tokenizer/byte_level.h"

namespace hone {
namespace {

// Patterns of the models' tokenizer.json files.
constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view tekken_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view gpt4o_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view deepseek_v3_pattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view deepseek_llm_letters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼ)"
    R"(ℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";

Json split(std::string_view pattern) {
  return JsonObject{
      {"type", "Split"}, {"pattern", JsonObject{{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

Json byte_level(bool use_regex) {
  return JsonObject{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json digits() { return JsonObject{{"type", "Digits"}, {"individual_digits", true}}; }

Json sequence(JsonArray parts) { return JsonObject{{"type", "Sequence"}, {"pretokenizers", std::move(parts)}}; }

// Splits by each pattern in turn; the pieces are spelled in the byte alphabet.
Json patterns(std::initializer_list<std::string_view> all) {
  JsonArray parts;
  for (const std::string_view pattern : all) parts.push_back(split(pattern));
  parts.push_back(byte_level(false));
  return sequence(std::move(parts));
}

const std::vector<GgufPreType>& pre_types() {
  static const std::vector<GgufPreType> all = {
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "gigachat", "mellum",
        "a.x-4.0", "modern-bert", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de"},
       byte_level(true)},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
       sequence({digits(), byte_level(true)})},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       patterns({llama3_pattern}),
       true,
       false,
       true},
      {{"smaug-bpe", "dbrx", "chatglm-bpe", "glm4"}, patterns({llama3_pattern})},
      {{"qwen2"}, patterns({qwen2_pattern}), false, true},
      {{"deepseek-r1-qwen", "stablelm2", "megrez", "kormo", "hunyuan", "solar-open", "grok-2"},
       patterns({qwen2_pattern})},
      {{"tekken"}, patterns({tekken_pattern}), true, false, true},
      {{"gpt-4o", "llama4", "kanana2", "minimax-m2"}, patterns({gpt4o_pattern})},
      {{"deepseek-llm"},
       patterns({"[\r\n]", deepseek_llm_letters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
                 "[一-龥ࠀ-一가-퟿]+", R"(\p{N}+)"})},
      {{"deepseek-coder"},
       patterns({"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"})},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm"},
       patterns({R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", deepseek_v3_pattern})},
      {{"falcon"}, patterns({R"([\p{P}\$\+<=>\^~\|`]+)", gpt2_pattern, "[0-9][0-9][0-9]"})},
      {{"default"}, patterns({R"([\p{P}\$\+<=>\^~\|]+)", gpt2_pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"})},
      {{"bloom", "poro-chat", "gpt3-finnish"}, patterns({R"( ?[^(\s|.,!?…。，、।۔،)]+)"})},
      {{"viking"}, patterns({R"( ?[^(\s|.,!?…。，、।۔،)]+)", R"(\p{N})"})},
      {{"bailingmoe", "bailingmoe2", "llada-moe"},
       patterns({R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|)"
                 R"(\s+(?!\S)|\s+)"})},
      {{"seed-coder"},
       patterns({R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|)"
                 R"(\s+(?!\S)|\s+)"})},
      {{"chameleon"},
       patterns({"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", R"(\p{N})",
                 R"([\p{P}!-/:-@\[-`{-~])", gpt2_pattern}),
       false,
       false,
       true},
  };
  return all;
}

bool flag(const Json& json, std::string_view key, bool fallback) {
  const Json* value = json.find(key);
  return value && value->is_bool() ? value->as_bool() : fallback;
}

// The steps of a pre-tokenizer as text, one a line, so that files that say the same in other words are equal; nullopt:
// it has a step that no GGUF pre-tokenizer has.
std::optional<std::string> steps_of(const Json& json) {
  const Json* type = json.is_object() ? json.find("type") : nullptr;
  if (!type || !type->is_string()) return std::nullopt;
  const std::string& kind = type->as_string();
  if (kind == "Sequence") {
    std::string out;
    const Json* parts = json.find("pretokenizers");
    if (!parts || !parts->is_array()) return std::nullopt;
    for (const Json& part : parts->as_array()) {
      const std::optional<std::string> steps = steps_of(part);
      if (!steps) return std::nullopt;
      out += *steps;
    }
    return out;
  }
  if (kind == "Split") {
    const Json* pattern = json.find("pattern");
    const Json* regex = pattern && pattern->is_object() ? pattern->find("Regex") : nullptr;
    const Json* behavior = json.find("behavior");
    if (!regex || !behavior || *behavior != Json("Isolated") || flag(json, "invert", false)) return std::nullopt;
    return "split " + regex->dump() + "\n";
  }
  if (kind == "Digits" && flag(json, "individual_digits", false)) return "split " + Json("\\p{N}").dump() + "\n";
  if (kind == "ByteLevel" && !flag(json, "add_prefix_space", true))
    return flag(json, "use_regex", true) ? "split " + Json(gpt2_pattern).dump() + "\nbytes\n" : "bytes\n";
  return std::nullopt;
}

bool normalizes_to_nfc(const Json& tokenizer_json) {
  const Json* normalizer = tokenizer_json.find("normalizer");
  return normalizer && normalizer->is_object() && normalizer->find("type") && *normalizer->find("type") == Json("NFC");
}

}  // namespace

const GgufPreType& gguf_pre_type(std::string_view name, std::string_view where) {
  std::vector<std::string> known;
  for (const GgufPreType& type : pre_types())
    for (const std::string_view other : type.names) {
      if (other == name) return type;
      known.emplace_back(other);
    }
  std::ranges::sort(known);
  fail(where, ": the pre-tokenizer '", name, "' is not supported", suggestion(name, known),
       "; supported: ", join(known));
}

const GgufPreType* find_gguf_pre_type(const Json& tokenizer_json) {
  const Json* pre_tokenizer = tokenizer_json.find("pre_tokenizer");
  const std::optional<std::string> steps = pre_tokenizer ? steps_of(*pre_tokenizer) : std::nullopt;
  if (!steps) return nullptr;
  const Json* model = tokenizer_json.find("model");
  const bool ignore_merges = model && flag(*model, "ignore_merges", false), nfc = normalizes_to_nfc(tokenizer_json);
  const GgufPreType* found = nullptr;  // the same steps with another normalizer or flag: the closest there is
  for (const GgufPreType& type : pre_types()) {
    if (steps_of(type.pre_tokenizer) != steps) continue;
    if (type.ignore_merges == ignore_merges && type.nfc == nfc) return &type;
    if (!found) found = &type;
  }
  return found;
}

}  // namespace hone
